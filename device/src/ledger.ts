/** What this person has spent, kept on the device: recorded before anything leaves, and never taken back. */

import { insist, Refused } from "./bytes.js";
import { epsilonOf, insistOnPolicy, Policy, Terms } from "./terms.js";

/** One run that the person took part in, at what it cost; `at` is in milliseconds since 1970. */
export type Entry = { run: string; epsilon: number; delta: number; at: number };

/** Everything that a device keeps. */
export type Kept = { policy: Policy; entries: Entry[] };

/** Where it is kept; `change` reads and writes in one transaction, so two tabs cannot spend the same budget. */
export interface Store {
  read(): Promise<Kept | undefined>;
  change(next: (kept: Kept | undefined) => Kept): Promise<Kept>;
  wipe(): Promise<void>;
}

const YEAR = 365 * 24 * 60 * 60 * 1000;

/** A store that ends with the page. */
export class MemoryStore implements Store {
  private kept: string | undefined;

  async read(): Promise<Kept | undefined> {
    return this.kept === undefined ? undefined : (JSON.parse(this.kept) as Kept);
  }

  async change(next: (kept: Kept | undefined) => Kept): Promise<Kept> {
    const found = next(await this.read());
    this.kept = JSON.stringify(found);
    return found;
  }

  async wipe(): Promise<void> {
    this.kept = undefined;
  }
}

/** A store in the browser's IndexedDB, of this origin alone. */
export class IndexedDbStore implements Store {
  constructor(private readonly name = "privfed-device") {}

  async read(): Promise<Kept | undefined> {
    return this.within("readonly", (table, done) => {
      const asked = table.get("kept");
      asked.onsuccess = () => done(asked.result as Kept | undefined);
    });
  }

  async change(next: (kept: Kept | undefined) => Kept): Promise<Kept> {
    return this.within("readwrite", (table, done, fail) => {
      const asked = table.get("kept");
      asked.onsuccess = () => {
        try {
          const found = next(asked.result as Kept | undefined);
          table.put(found, "kept");
          done(found);
        } catch (refused) {
          fail(refused);
        }
      };
    });
  }

  async wipe(): Promise<void> {
    await promised(indexedDB.deleteDatabase(this.name));
  }

  private async within<T>(
    mode: IDBTransactionMode, work: (table: IDBObjectStore, done: (value: T) => void, fail: (why: unknown) => void) => void,
  ): Promise<T> {
    insist(typeof indexedDB !== "undefined", "this browser keeps no IndexedDB here: nothing can be spent without a ledger");
    const opening = indexedDB.open(this.name, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("device");
    const base = await promised(opening);
    try {
      return await new Promise<T>((resolve, reject) => {
        const transaction = base.transaction("device", mode, { durability: "strict" });
        let result: T;
        transaction.oncomplete = () => resolve(result);
        transaction.onabort = () => reject(transaction.error ?? new Refused("the ledger was not written"));
        work(transaction.objectStore("device"), (value) => (result = value), (why) => {
          reject(why);
          transaction.abort();
        });
      });
    } finally {
      base.close();
    }
  }
}

/** A person's policy and budget of a sliding year; epsilons of runs add up, and so do deltas. */
export class Ledger {
  constructor(private readonly store: Store, private readonly now: () => number = Date.now) {}

  /** Set the policy; what was spent stays spent. */
  async allow(policy: Policy): Promise<void> {
    const bad = Object.entries(policy).find(([, value]) => !(typeof value === "number" && value > 0 && value < Infinity));
    insist(bad === undefined, `the policy has ${bad?.[0]} = ${bad?.[1]}: give a positive number`);
    await this.store.change((kept) => ({ policy, entries: kept?.entries ?? [] }));
  }

  /** What has been spent in the last year, and the policy; nothing before a policy was set. */
  async state(): Promise<{ policy: Policy; epsilon: number; delta: number; runs: number } | undefined> {
    const kept = await this.store.read();
    return kept && { policy: kept.policy, ...this.spent(kept) };
  }

  /** Record a run before its first upload leaves, or refuse it; no run is joined twice. */
  async charge(run: string, terms: Terms): Promise<void> {
    insist(/^[0-9a-f]{32}$/.test(run), `${run.slice(0, 40)} is no run: it has 32 hexadecimal digits`);
    await this.store.change((kept) => {
      insist(kept !== undefined, "no policy is set, so nothing may leave this device: choose a budget first");
      insistOnPolicy(terms, kept.policy);
      insist(!kept.entries.some((entry) => entry.run === run), `run ${run} is charged already: it is not joined twice`);
      const [cost, spent] = [{ epsilon: epsilonOf(terms), delta: terms.delta }, this.spent(kept)];
      insist(
        spent.epsilon + cost.epsilon <= kept.policy.epsilonPerYear && spent.delta + cost.delta <= kept.policy.deltaPerYear,
        `epsilon ${spent.epsilon.toPrecision(3)} is spent this year and the run costs ${cost.epsilon.toPrecision(3)}: ` +
          `your policy allows ${kept.policy.epsilonPerYear}`,
      );
      return { policy: kept.policy, entries: [...kept.entries, { run, ...cost, at: this.now() }] };
    });
  }

  /** Withdraw: nothing may leave any more, and nothing of the person stays on the device. */
  withdraw(): Promise<void> {
    return this.store.wipe();
  }

  private spent(kept: Kept): { epsilon: number; delta: number; runs: number } {
    const recent = kept.entries.filter((entry) => entry.at > this.now() - YEAR);
    const sum = (of: (entry: Entry) => number): number => recent.reduce((total, entry) => total + of(entry), 0);
    return { epsilon: sum((entry) => entry.epsilon), delta: sum((entry) => entry.delta), runs: recent.length };
  }
}

function promised<T>(asked: IDBRequest<T> | IDBOpenDBRequest): Promise<T> {
  return new Promise((resolve, reject) => {
    asked.onsuccess = () => resolve(asked.result as T);
    asked.onerror = () => reject(asked.error);
    if ("onblocked" in asked) asked.onblocked = () => reject(new Refused("another tab holds the ledger: close it first"));
  });
}
