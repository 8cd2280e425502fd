/** A server that lies, a ledger that others share, a process that dies: each ends in one sentence and spends nothing. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as device from "../dist/index.js";
import { announcement, HEAD, HISTORY, OTHER, POLICY, query, RUN, Sum, terms, vectors, World } from "./world.mjs";

const SENTENCE = /^[^.\n](?:[^\n]){10,300}$/;
const ABSENT = Symbol("absent");
const [HUGE, LOWEST] = ["@1e999@", "@-1e999@"];
const NO_NUMBER = [ABSENT, null, "1", [], [1], {}, true, HUGE, LOWEST, -1];
const NO_WHOLE = [...NO_NUMBER, 0.5, 1e18];
const NO_TEXT = [ABSENT, null, 1, [], ["a".repeat(32)], {}, true, "", "__proto__", "A".repeat(32), "a".repeat(31), "é".repeat(32)];
const POLLUTED = ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty"];

/** JSON of a content, with what JSON.stringify cannot write. */
const text = (content) => JSON.stringify(content).replace(/"@(-?1e999)@"/g, "$1");

/** A copy in which one place has another value. */
function changed(content, path, value) {
  const copy = structuredClone(content);
  const place = path.slice(0, -1).reduce((one, name) => one[name], copy);
  if (value === ABSENT) delete place[path.at(-1)];
  else Object.defineProperty(place, path.at(-1), { value, enumerable: true, configurable: true, writable: true });
  return copy;
}

const table = (content, fields) =>
  fields.flatMap(([path, values]) => values.map((value) => [`${path.join(".")} = ${String(value)}`, changed(content, path, value)]));

/** A device with a budget in a federation of its own. */
async function joined({ store = new device.MemoryStore(), now, history = () => HISTORY } = {}) {
  const ledger = new device.Ledger(store, now);
  await ledger.allow(POLICY);
  const world = await World.create(ledger);
  const open = async (other = ledger) => device.Participant.join(other, await world.federation(), history);
  return { ledger, store, world, open, participant: await open() };
}

/** Whatever is refused is so in one sentence of this module, and the ledger stays as it was. */
async function refused(ledger, what, work, why = /./) {
  const before = await ledger.state();
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof device.Refused, `${what}: ${error.stack}`);
    assert.match(error.message, SENTENCE, what);
    assert.match(error.message, why, what);
    return true;
  }, `${what} was not refused`);
  assert.deepEqual(await ledger.state(), before);
}

const number = (name) => [["terms", name], NO_NUMBER];
const whole = (name) => [["terms", name], NO_WHOLE];
const queries = [0, 1].flatMap((at) => [
  [["terms", "queries", at, "name"], NO_TEXT], [["terms", "queries", at, "coordinates"], NO_WHOLE],
  ...["weight", "share", "grid", "total_variance"].map((name) => [["terms", "queries", at, name], NO_NUMBER]),
  [["terms", "queries", at, "diagonal"], [ABSENT, null, "true", 1, [], {}]],
  ...POLLUTED.map((name) => [["terms", "queries", at, name], [{ weight: 1 }]]),
]);
const ANNOUNCED = table(announcement(), [
  [["run"], NO_TEXT], [["terms"], [ABSENT, null, 1, "terms", [], true]],
  ...["format", "method", "law"].map((name) => [["terms", name], [ABSENT, null, 2, "2", [], {}, "__proto__"]]),
  ...["beta", "clip_norm", "delta"].map(number), ...["rounds", "min_honest", "colluding", "cohort", "bits"].map(whole),
  [["terms", "rounds"], [2]], [["terms", "bits"], [33, 8]], [["terms", "delta"], [0, 0.6]],
  [["terms", "queries"], [ABSENT, null, [], {}, 1, "gram", [null], [[]], Array(17).fill(terms().queries[0])]],
  ...queries, [["terms", "queries", 0, "head_popularity"], [0.5, null, HUGE]],
  [["terms", "queries", 0, "total_variance"], [1e9, 1e300]], [["terms", "queries", 0, "grid"], [1e-12, 1e-300]],
  [["terms", "queries", 1, "head_popularity"], NO_NUMBER], [["terms", "queries", 1, "diagonal"], [false]],
  [["terms", "queries", 1, "coordinates"], [136, 151, 153]], [["terms", "queries", 0, "coordinates"], [59, 61]],
  ...POLLUTED.flatMap((name) => [[[name], [{}]], [["terms", name], [{ rounds: 1 }]]]),
]);

test("every field of an announcement with every wrong value is refused", async () => {
  const { ledger, world, participant } = await joined();
  assert.ok(ANNOUNCED.length > 250, String(ANNOUNCED.length));
  for (const [what, content] of ANNOUNCED) await refused(ledger, what, () => world.say(participant, "announce", text(content)));
  for (const raw of ["", "null", "[]", "{", '"run"', "\u0000", `${"[".repeat(1e5)}`, '{"run":1,"run":2}', Uint8Array.of(255, 254)]) {
    await refused(ledger, raw, () => world.say(participant, "announce", raw));
  }
  assert.equal({}.rounds, undefined);
  await world.say(participant, "announce", announcement());
});

test("every field of a query with every wrong value is refused, whatever the history", async () => {
  const words = (array) => device.hex(new Uint8Array(array.buffer));
  const [floats, wholes] = [(values) => words(Float32Array.from(values)), (values) => words(Int32Array.from(values))];
  const sixteen = [...Array(16).keys()];
  const shapes = [ABSENT, null, 1, [], {}, true, "", "0", "zz", "00", "00".repeat(63), "00".repeat(65), "00".repeat(4 * 17)];
  const asked = table(query(1), [
    [["run"], [...NO_TEXT, OTHER]], [["query"], [...NO_WHOLE, "0", [0], [1], 2, 17, "length", "constructor", "__proto__"]],
    [["masking"], NO_TEXT], ...["head", "shares", "scale"].map((name) => [[name], shapes]),
    [["head"], [wholes(sixteen.map(() => 3)), wholes(sixteen.map((at) => at - 1)), wholes(sixteen.map((at) => (at === 7 ? 6 : at)))]],
    ...["shares", "scale"].map((name) => [[name], [NaN, Infinity, -Infinity, -1].map((bad) => floats(sixteen.map((at) => (at === 5 ? bad : 1))))]),
    ...POLLUTED.map((name) => [[name], [{ query: 1 }]]),
  ]);
  for (const history of [new Set(), HISTORY, new Set([10 ** 9])]) {
    const { ledger, world, participant } = await joined({ history: () => history });
    await refused(ledger, "before anything was announced", () => world.say(participant, "query", query(1)), /did not join/);
    await world.say(participant, "announce", announcement());
    for (const [what, content] of asked) await refused(ledger, what, () => world.say(participant, "query", text(content)));
    await world.say(participant, "query", query(1));
  }
});

test("what the server did not sign, or signed for another seat, stage, version or time is not answered", async () => {
  const { ledger, world, participant } = await joined();
  const good = announcement();
  for (const [what, change, why] of [
    ["a stranger", { by: world.stranger }, /not signed by the server/], ["another device", { by: world.others.get(0) }, /not signed/],
    ["another seat", { seat: 1 }, /to seat 1/], ["another stage", { named: "query" }, /came as announce/],
    ["another version", { version: 2 }, /of version 2/],
  ]) await refused(ledger, what, () => world.say(participant, "announce", good, change), why);
  for (const [at, why] of [[0, /no request/], [20, /not signed/], [100, /not signed/], [-1, /not signed/]]) {
    const frame = await world.frame("announce", good);
    frame[at < 0 ? frame.length + at : at] ^= 1;
    await refused(ledger, `a bit at ${at}`, () => participant.handle("announce", frame), why);
  }
  for (const size of [0, 10, 145]) await refused(ledger, "short", () => participant.handle("announce", new Uint8Array(size)), /too short/);
  const frame = await world.frame("announce", good);
  await participant.handle("announce", frame);
  await refused(ledger, "sent again", () => participant.handle("announce", frame), /sent before/);
  await refused(ledger, "an older one", () => world.say(participant, "announce", good, { counter: 3n }), /sent before/);
  await refused(ledger, "no such stage", () => world.say(participant, "train", "{}"), /no sum was announced/);
});

test("a federation that another operator signed, or that is none of devices, is not joined", async () => {
  const ledger = new device.Ledger(new device.MemoryStore());
  const key = (await ledger.identity()).publicKey;
  const world = await World.create(ledger);
  await refused(ledger, "another operator's", () => world.federation(world.stranger.publicKey), /not signed by the operator/);
  world.file = Uint8Array.from([...world.file, 32]);
  await refused(ledger, "a byte more", () => world.federation(), /not signed by the operator/);
  const organisation = (at, change) => (file) => {
    file.organisations[at] = { ...file.organisations[at], ...change };
    return file;
  };
  for (const [what, change, why] of [
    ["two users at a seat", organisation(1, { users: "1-2" }), /one person for each seat/],
    ["two alike", (file) => organisation(1, { key: file.organisations[0].key })(file), /the same key/],
    ["the server as a device", (file) => organisation(1, { key: file.server })(file), /the same key/],
    ["no key", organisation(1, { key: ["a".repeat(64)] }), /one person/], ["people besides", (file) => ({ ...file, population: 9 }), /one person/],
    ["no list", (file) => ({ ...file, organisations: {} }), /lists no devices/], ["a field", (file) => ({ ...file, extra: 1 }), /field extra/],
    ["no version", (file) => ({ ...file, version: "2" }), /a number that is none/], ["negative", (file) => ({ ...file, corrupt: -1 }), /none/],
  ]) await refused(ledger, what, async () => (await World.create(ledger, change)).federation(), why);
  const elsewhere = await World.create(new device.Ledger(new device.MemoryStore()));
  const strange = await elsewhere.federation();
  await refused(ledger, "without this device", () => device.Participant.join(ledger, strange, () => HISTORY), new RegExp(device.hex(key)));
  const [older, newer] = [await World.create(ledger), await World.create(ledger, (file) => ({ ...file, version: 3 }))];
  await device.Participant.join(ledger, await newer.federation(), () => HISTORY);
  const back = await older.federation();
  await refused(ledger, "an older version", () => device.Participant.join(ledger, back, () => HISTORY), /is older than 3/);
});

test("a roster of the attacker's own keys, of too few, or of others than were signed opens nothing", async () => {
  const strangers = new Map();
  for (const id of [0, 1, 3, 4, 5, 6]) strangers.set(id, await device.Identity.generate());
  for (const [what, change, why] of [
    ["keys of its own", { keys: strangers }, /not of client/], ["seats of its own", { keys: strangers, clients: [2, 4, 5, 6] }, /knows no client|not of client/],
    ["too few", { clients: [0, 2] }, /on the roster/], ["without this device", { clients: [0, 1, 3] }, /not on the roster/],
    ["twice", { clients: [0, 0, 2, 3] }, /rising order/],
  ]) {
    const { ledger, world, participant } = await joined();
    await world.say(participant, "announce", announcement());
    const sum = new Sum(world, participant, query(0), change);
    await refused(ledger, what, () => sum.upload(), why);
    await refused(ledger, `${what}, and then`, () => sum.input(new Uint8Array(1)), /is due/);
  }
});

test("a run is charged with its first upload, and with nothing before", async () => {
  const { ledger, world, participant } = await joined();
  await world.say(participant, "announce", announcement());
  const first = new Sum(world, participant, query(0));
  assert.ok((await first.upload(async () => assert.equal((await ledger.state()).runs, 0))).length > 0);
  const cost = (await ledger.state()).epsilon;
  assert.equal(cost, device.epsilonOf(device.parseTerms(terms())));
  await new Sum(world, participant, query(1)).upload();
  assert.deepEqual([(await ledger.state()).runs, (await ledger.state()).epsilon], [1, cost]);
  for (const again of [0, 1]) {
    const asked = query(again, { masking: "d".repeat(32) });
    await refused(ledger, "once more", () => new Sum(world, participant, asked).upload(), /was answered/);
  }
  await refused(ledger, "the run once more", () => world.say(participant, "announce", announcement()), /joined twice/);
});

test("an announcement that asks for more than is left, or comes again under another name, costs nothing", async () => {
  const { ledger, world, participant } = await joined();
  for (let at = 0; at < 50; at++) await world.say(participant, "announce", announcement({ run: at.toString(16).padStart(32, "0") }));
  assert.equal((await ledger.state()).runs, 0);
  await ledger.allow({ ...POLICY, epsilonPerYear: 0.01 });
  await refused(ledger, "too dear", () => world.say(participant, "announce", announcement()), /your policy allows 0.01/);
});

test("no key of noise serves two uploads, and no query of a run is answered twice by two tabs or after a crash", async () => {
  const drawn = [];
  const fresh = crypto.getRandomValues;
  crypto.getRandomValues = (into) => {
    const out = fresh.call(crypto, into);
    drawn.push(device.hex(out));
    return out;
  };
  try {
    const { ledger, store, world, participant: tab, open } = await joined();
    const other = await open(new device.Ledger(store));
    for (const one of [tab, other]) await world.say(one, "announce", announcement());
    const sums = [new Sum(world, tab, query(0)), new Sum(world, other, query(0))];
    const waiting = [];
    for (const sum of sums) {
      await sum.begin();
      waiting.push(await sum.goAhead());
    }
    const ended = await Promise.allSettled(sums.map((sum, at) => sum.input(waiting[at])));
    assert.deepEqual(ended.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
    assert.match(ended.find(({ status }) => status === "rejected").reason.message, /answered elsewhere/);
    assert.equal((await ledger.state()).runs, 1);
    const [winner, loser] = ended[0].status === "fulfilled" ? [tab, other] : [other, tab];
    await refused(ledger, "the other tab's second query", () => new Sum(world, loser, query(1)).upload(), /answered elsewhere/);
    await new Sum(world, winner, query(1)).upload();
    // Killed, and started again: what it knew is gone, and the ledger is not.
    const restarted = await open(new device.Ledger(store));
    await refused(ledger, "after a restart", () => world.say(restarted, "announce", announcement()), /joined twice/);
    await refused(ledger, "a replay after it", () => world.say(restarted, "query", query(1)), /did not join/);
    await world.say(restarted, "announce", announcement({ run: OTHER }));
    await new Sum(world, restarted, query(0, { run: OTHER })).upload();
    assert.equal(new Set(drawn).size, drawn.length);
  } finally {
    crypto.getRandomValues = fresh;
  }
});

/** A store that fails, or a process that dies, at a moment of a test's choosing. */
class Dying extends device.MemoryStore {
  dies = "";

  async change(next) {
    if (this.dies === "before") throw new Error("gone");
    const done = await super.change(next);
    if (this.dies === "after") throw new Error("gone");
    return done;
  }
}

test("a process that dies before the ledger is written sends nothing, and one that dies after it never sends again", async () => {
  for (const dies of ["before", "after"]) {
    const { ledger, store, world, participant, open } = await joined({ store: new Dying() });
    await world.say(participant, "announce", announcement());
    const sum = new Sum(world, participant, query(0));
    await assert.rejects(() => sum.upload(async () => (store.dies = dies)), device.Refused);
    store.dies = "";
    assert.equal((await ledger.state()).runs, dies === "after" ? 1 : 0);
    const restarted = await open();
    if (dies === "after") await assert.rejects(() => world.say(restarted, "announce", announcement()), /joined twice/);
    else await world.say(restarted, "announce", announcement());
  }
});

test("a budget that is withdrawn between two queries ends the run, and a new one does not take it up", async () => {
  for (const anew of [false, true]) {
    const { ledger, world, participant } = await joined();
    await world.say(participant, "announce", announcement());
    await new Sum(world, participant, query(0)).upload();
    await ledger.withdraw();
    assert.equal(await ledger.state(), undefined);
    if (anew) await ledger.allow(POLICY);
    await refused(ledger, "the second query", () => new Sum(world, participant, query(1)).upload(), /withdrawn/);
    const federation = await world.federation();
    const rejoin = () => device.Participant.join(ledger, federation, () => HISTORY);
    await refused(ledger, "the former seat under a new ledger", rejoin, /lists no device/);
  }
});

test("a policy that became stricter between two queries holds for the second", async () => {
  const { ledger, world, participant } = await joined();
  await world.say(participant, "announce", announcement());
  await new Sum(world, participant, query(0)).upload();
  await ledger.allow({ ...POLICY, leastCohort: 1000 });
  await refused(ledger, "the second query", () => new Sum(world, participant, query(1)).upload(), /asks for 1000/);
});

test("a ledger that is damaged is not taken for an empty one", async () => {
  for (const entries of [undefined, null, {}, "", [null], [{}], [{ run: RUN, epsilon: "1", delta: 0, at: 0, queries: [] }],
    [{ run: RUN, epsilon: NaN, delta: 0, at: 0, queries: [] }], [{ run: RUN, epsilon: 1, delta: 0, at: -1, queries: [] }],
    [{ run: RUN, epsilon: 1, delta: 0, at: 0 }]]) {
    const store = new device.MemoryStore();
    await store.change(() => ({ policy: POLICY, entries }));
    const ledger = new device.Ledger(store);
    await assert.rejects(ledger.admit(RUN, device.parseTerms(terms())), /ledger on this device is damaged/);
    await assert.rejects(ledger.allow(POLICY), /ledger on this device is damaged/);
  }
});

test("a browser that keeps nothing is refused before anything is sent", async () => {
  const [before, failing] = [globalThis.indexedDB, { open: () => { throw new DOMException("denied", "SecurityError"); } }];
  for (const found of [undefined, null, failing]) {
    globalThis.indexedDB = found;
    const ledger = new device.Ledger(new device.IndexedDbStore());
    for (const work of [() => ledger.state(), () => ledger.allow(POLICY), () => ledger.identity(), () => ledger.admit(RUN, terms())]) {
      await assert.rejects(work, (error) => error instanceof device.Refused && /keeps no IndexedDB here/.test(error.message));
    }
  }
  globalThis.indexedDB = before;
});

test("a browser without the curves draws no key and joins nothing", async () => {
  const whole = crypto.subtle.generateKey;
  crypto.subtle.generateKey = async (kind, ...rest) => {
    if (kind.name === "Ed25519") throw new DOMException("unrecognised", "NotSupportedError");
    return whole.call(crypto.subtle, kind, ...rest);
  };
  try {
    const ledger = new device.Ledger(new device.MemoryStore());
    await refused(ledger, "no Ed25519", () => ledger.identity(), /no Ed25519, so it cannot take part/);
  } finally {
    crypto.subtle.generateKey = whole;
  }
});

test("a page that is asked twice at a time answers once", async () => {
  const { world, participant } = await joined();
  const frames = [await world.frame("announce", announcement()), await world.frame("announce", announcement({ run: OTHER }))];
  const ended = await Promise.allSettled(frames.map((frame) => participant.handle("announce", frame)));
  assert.deepEqual(ended.map(({ status }) => status), ["fulfilled", "rejected"]);
});

test("frames of another protocol, endless ones and redirections are refused by the loop", async () => {
  const { world, participant } = await joined();
  const whole = globalThis.fetch;
  const endless = () => new ReadableStream({ pull: (to) => to.enqueue(new Uint8Array(1 << 24)) });
  const framed = async (change) => {
    const frame = device.concat(device.ascii("PFHT"), Uint8Array.of(0, 1), new Uint8Array(8), new Uint8Array(64).fill(32), new Uint8Array(9));
    change(frame);
    return frame;
  };
  for (const [body, why] of [
    [new Uint8Array(0), /another protocol/], [new Uint8Array(77), /another protocol/], [await framed((f) => (f[0] = 0)), /another protocol/],
    [await framed((f) => (f[5] = 9)), /speaks version 9/], [await framed(() => {}), /too short/], [endless(), /more than/],
  ]) {
    const end = new AbortController();
    let said;
    globalThis.fetch = async (_, options) => {
      assert.equal(options.redirect, "error");
      return new Response(body, { status: 200 });
    };
    await device.participate("http://127.0.0.1:1", "token", participant, end.signal, (error) => (said = error, end.abort()));
    assert.ok(said instanceof device.Refused);
    assert.match(said.message, why);
  }
  globalThis.fetch = whole;
  void world;
});

test("the vectors' head is one that a device takes", () => {
  assert.equal(HEAD, vectors.head);
});
