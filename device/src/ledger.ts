/**
 * What this person has spent, kept on the device: recorded before anything leaves, and never taken back.
 *
 * A run is charged whole, with its first upload. Every upload is written down by run and query, in the transaction that
 * finds room for it: whatever a server repeats, however many tabs share a ledger, and wherever a process dies, no query
 * of a run is answered twice, so no two uploads of one history differ by their noise alone.
 */

import { insist, Refused, shown } from "./bytes.js";
import { insistOnCrypto } from "./crypto.js";
import { Identity } from "./identity.js";
import { epsilonOf, insistOnPolicy, Policy, Terms } from "./terms.js";

/** One run, at what it cost, `at` milliseconds since 1970: who answers it (one page, once loaded), and what it answered. */
export type Entry = { run: string; epsilon: number; delta: number; at: number; session: string; queries: number[] };

/** Everything that a device keeps. */
export type Kept = { policy?: Policy; entries: Entry[]; identity?: Identity; versions?: [string, number][] };

/** Where it is kept; `change` reads and writes in one transaction, so two tabs cannot spend the same budget. */
export interface Store {
  read(): Promise<Kept | undefined>;
  change(next: (kept: Kept | undefined) => Kept): Promise<Kept>;
  wipe(): Promise<void>;
}

const MOST = 2 ** 24;
const YEAR = 365 * 24 * 60 * 60 * 1000;

/** A store that ends with the page. */
export class MemoryStore implements Store {
  private kept: Kept | undefined;

  async read(): Promise<Kept | undefined> {
    return this.kept && { ...structuredClone({ ...this.kept, identity: undefined }), identity: this.kept.identity };
  }

  async change(next: (kept: Kept | undefined) => Kept): Promise<Kept> {
    const before = this.kept && { ...structuredClone({ ...this.kept, identity: undefined }), identity: this.kept.identity };
    return (this.kept = next(before));
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

  private async opened(): Promise<IDBDatabase> {
    try {
      const opening = indexedDB.open(this.name, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("device");
      return await promised(opening);
    } catch (why) {
      if (why instanceof Refused) throw why;
      throw new Refused("this browser keeps no IndexedDB here: nothing can be spent without a ledger");
    }
  }

  private async within<T>(
    mode: IDBTransactionMode, work: (table: IDBObjectStore, done: (value: T) => void, fail: (why: unknown) => void) => void,
  ): Promise<T> {
    const base = await this.opened();
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
    insistOnWhole(policy);
    await this.store.change((kept) => ({ ...sound(kept), policy }));
  }

  /** What has been spent in the last year, and the policy; nothing before a policy was set. */
  async state(): Promise<{ policy: Policy; epsilon: number; delta: number; runs: number } | undefined> {
    const kept = sound(await this.store.read());
    return kept.policy && { policy: kept.policy, ...this.spent(kept) };
  }

  /** The signing key of this device, drawn once; it goes with the ledger, so no seat outlives what it has spent. */
  async identity(): Promise<Identity> {
    await insistOnCrypto();
    const drawn = await Identity.generate();
    const kept = await this.store.change((found) => ({ ...sound(found), identity: found?.identity ?? drawn }));
    return Identity.from(kept.identity!);
  }

  /** Take over a version of a federation, or refuse one that is older than what was taken over before. */
  async pin(federation: string, version: number): Promise<void> {
    await this.store.change((found) => {
      const kept = sound(found);
      const newest = (kept.versions ?? []).find(([name]) => name === federation)?.[1] ?? 0;
      insist(version >= newest, `version ${version} of ${federation} is older than ${newest}, which this device has seen`);
      const others = (kept.versions ?? []).filter(([name]) => name !== federation);
      return { ...kept, versions: [...others, [federation, version]] };
    });
  }

  /** Refuse a run that the policy forbids, for which too little is left, or that was answered before; it costs nothing. */
  async admit(run: string, terms: Terms): Promise<void> {
    insist(typeof run === "string" && /^[0-9a-f]{32}$/.test(run), `${shown(run)} is no run: it has 32 hexadecimal digits`);
    this.insistOnRoom(sound(await this.store.read()), run, terms);
  }

  /**
   * Write down an upload before it is made, and with the first one of a run what the run costs, or refuse it.
   *
   * `session` is whoever admitted the run, and `begun` whether it has sent anything in it: a run that others answer, and
   * one that was charged and is no longer in the ledger, is left.
   */
  async spend(run: string, terms: Terms, query: number, session: string, begun: boolean): Promise<void> {
    await this.store.change((found) => {
      const kept = sound(found);
      const entry = kept.entries.find((one) => one.run === run);
      if (entry === undefined) {
        insist(!begun, "the ledger of this run was withdrawn: nothing more of it leaves this device");
        const cost = this.insistOnRoom(kept, run, terms);
        return { ...kept, entries: [...kept.entries, { run, ...cost, at: this.time(), session, queries: [query] }] };
      }
      insist(kept.policy !== undefined, NO_POLICY);
      insistOnPolicy(terms, kept.policy);
      insist(begun && entry.session === session, `run ${run} is answered elsewhere, or was: it is not joined twice`);
      insist(!entry.queries.includes(query), `query ${query} was answered, and is not answered twice`);
      const entries = kept.entries.map((one) => (one === entry ? { ...one, queries: [...one.queries, query] } : one));
      return { ...kept, entries };
    });
  }

  /** Withdraw: nothing may leave any more, and nothing of the person stays on the device, its signing key neither. */
  withdraw(): Promise<void> {
    return this.store.wipe();
  }

  private insistOnRoom(kept: Kept, run: string, terms: Terms): { epsilon: number; delta: number } {
    const { policy } = kept;
    insist(policy !== undefined, NO_POLICY);
    insistOnPolicy(terms, policy);
    insist(!kept.entries.some((entry) => entry.run === run), `run ${run} is charged already: it is not joined twice`);
    const [cost, spent] = [{ epsilon: epsilonOf(terms), delta: terms.delta }, this.spent(kept)];
    insist(
      spent.epsilon + cost.epsilon <= policy.epsilonPerYear && spent.delta + cost.delta <= policy.deltaPerYear,
      `epsilon ${spent.epsilon.toPrecision(3)} is spent this year and the run costs ${cost.epsilon.toPrecision(3)}: ` +
        `your policy allows ${policy.epsilonPerYear}`,
    );
    return cost;
  }

  /** A clock that was set back frees nothing: what lies in its future was spent, too. */
  private spent(kept: Kept): { epsilon: number; delta: number; runs: number } {
    const since = this.time() - YEAR;
    const recent = kept.entries.filter((entry) => entry.at > since);
    const sum = (of: (entry: Entry) => number): number => recent.reduce((total, entry) => total + of(entry), 0);
    return { epsilon: sum((entry) => entry.epsilon), delta: sum((entry) => entry.delta), runs: recent.length };
  }

  private time(): number {
    const now = this.now();
    insist(Number.isFinite(now) && now > 0, "this device has no clock, so a year cannot be told: set it");
    return now;
  }
}

const NO_POLICY = "no policy is set, so nothing may leave this device: choose a budget first";

function insistOnWhole(policy: Policy): void {
  for (const name of ["epsilonPerYear", "deltaPerYear", "leastCohort", "leastHonest"] as const) {
    const value: unknown = policy[name];
    const positive = typeof value === "number" && value > 0 && value < Infinity;
    insist(positive, `the policy has ${name} = ${shown(value)}: give a positive number`);
  }
}

/** What was kept, unless something else wrote there: a ledger that cannot be read is not taken for an empty one. */
function sound(kept: Kept | undefined): Kept {
  if (kept === undefined) return { entries: [] };
  const positive = (one: unknown): boolean => typeof one === "number" && one >= 0 && one < Infinity;
  const right = Array.isArray(kept.entries) && kept.entries.length < MOST && kept.entries.every((one) =>
    typeof one?.run === "string" && [one.epsilon, one.delta, one.at].every(positive) && Array.isArray(one.queries));
  insist(right, "the ledger on this device is damaged, so what was spent is not known: forget it and take part anew");
  if (kept.policy !== undefined) insistOnWhole(kept.policy);
  return kept;
}

function promised<T>(asked: IDBRequest<T> | IDBOpenDBRequest): Promise<T> {
  return new Promise((resolve, reject) => {
    asked.onsuccess = () => resolve(asked.result as T);
    asked.onerror = () => reject(asked.error);
    if ("onblocked" in asked) asked.onblocked = () => reject(new Refused("another tab holds the ledger: close it first"));
  });
}
