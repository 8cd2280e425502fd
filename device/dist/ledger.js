/** What this person has spent, kept on the device: recorded before anything leaves, and never taken back. */
import { insist, Refused } from "./bytes.js";
import { epsilonOf, insistOnPolicy } from "./terms.js";
const YEAR = 365 * 24 * 60 * 60 * 1000;
/** A store that ends with the page. */
export class MemoryStore {
    kept;
    async read() {
        return this.kept === undefined ? undefined : JSON.parse(this.kept);
    }
    async change(next) {
        const found = next(await this.read());
        this.kept = JSON.stringify(found);
        return found;
    }
    async wipe() {
        this.kept = undefined;
    }
}
/** A store in the browser's IndexedDB, of this origin alone. */
export class IndexedDbStore {
    name;
    constructor(name = "privfed-device") {
        this.name = name;
    }
    async read() {
        return this.within("readonly", (table, done) => {
            const asked = table.get("kept");
            asked.onsuccess = () => done(asked.result);
        });
    }
    async change(next) {
        return this.within("readwrite", (table, done, fail) => {
            const asked = table.get("kept");
            asked.onsuccess = () => {
                try {
                    const found = next(asked.result);
                    table.put(found, "kept");
                    done(found);
                }
                catch (refused) {
                    fail(refused);
                }
            };
        });
    }
    async wipe() {
        await promised(indexedDB.deleteDatabase(this.name));
    }
    async within(mode, work) {
        insist(typeof indexedDB !== "undefined", "this browser keeps no IndexedDB here: nothing can be spent without a ledger");
        const opening = indexedDB.open(this.name, 1);
        opening.onupgradeneeded = () => opening.result.createObjectStore("device");
        const base = await promised(opening);
        try {
            return await new Promise((resolve, reject) => {
                const transaction = base.transaction("device", mode, { durability: "strict" });
                let result;
                transaction.oncomplete = () => resolve(result);
                transaction.onabort = () => reject(transaction.error ?? new Refused("the ledger was not written"));
                work(transaction.objectStore("device"), (value) => (result = value), (why) => {
                    reject(why);
                    transaction.abort();
                });
            });
        }
        finally {
            base.close();
        }
    }
}
/** A person's policy and budget of a sliding year; epsilons of runs add up, and so do deltas. */
export class Ledger {
    store;
    now;
    constructor(store, now = Date.now) {
        this.store = store;
        this.now = now;
    }
    /** Set the policy; what was spent stays spent. */
    async allow(policy) {
        const bad = Object.entries(policy).find(([, value]) => !(typeof value === "number" && value > 0 && value < Infinity));
        insist(bad === undefined, `the policy has ${bad?.[0]} = ${bad?.[1]}: give a positive number`);
        await this.store.change((kept) => ({ policy, entries: kept?.entries ?? [] }));
    }
    /** What has been spent in the last year, and the policy; nothing before a policy was set. */
    async state() {
        const kept = await this.store.read();
        return kept && { policy: kept.policy, ...this.spent(kept) };
    }
    /** Record a run before its first upload leaves, or refuse it; no run is joined twice. */
    async charge(run, terms) {
        insist(/^[0-9a-f]{32}$/.test(run), `${run.slice(0, 40)} is no run: it has 32 hexadecimal digits`);
        await this.store.change((kept) => {
            insist(kept !== undefined, "no policy is set, so nothing may leave this device: choose a budget first");
            insistOnPolicy(terms, kept.policy);
            insist(!kept.entries.some((entry) => entry.run === run), `run ${run} is charged already: it is not joined twice`);
            const [cost, spent] = [{ epsilon: epsilonOf(terms), delta: terms.delta }, this.spent(kept)];
            insist(spent.epsilon + cost.epsilon <= kept.policy.epsilonPerYear && spent.delta + cost.delta <= kept.policy.deltaPerYear, `epsilon ${spent.epsilon.toPrecision(3)} is spent this year and the run costs ${cost.epsilon.toPrecision(3)}: ` +
                `your policy allows ${kept.policy.epsilonPerYear}`);
            return { policy: kept.policy, entries: [...kept.entries, { run, ...cost, at: this.now() }] };
        });
    }
    /** Withdraw: nothing may leave any more, and nothing of the person stays on the device. */
    withdraw() {
        return this.store.wipe();
    }
    spent(kept) {
        const recent = kept.entries.filter((entry) => entry.at > this.now() - YEAR);
        const sum = (of) => recent.reduce((total, entry) => total + of(entry), 0);
        return { epsilon: sum((entry) => entry.epsilon), delta: sum((entry) => entry.delta), runs: recent.length };
    }
}
function promised(asked) {
    return new Promise((resolve, reject) => {
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
        if ("onblocked" in asked)
            asked.onblocked = () => reject(new Refused("another tab holds the ledger: close it first"));
    });
}
