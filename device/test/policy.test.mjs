/** Terms, policy, ledger and model files that lie: `node --test` in `device/`. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as device from "../dist/index.js";

const announced = JSON.parse(readFileSync(new URL("../vectors/uploading.json", import.meta.url), "utf8")).cases[0].terms;
const terms = device.parseTerms(announced);
const with_ = (change) => ({ ...structuredClone(announced), ...change });
const query = (change) => with_({ queries: [{ ...announced.queries[0], ...change }, announced.queries[1]] });
const policy = { epsilonPerYear: 5, deltaPerYear: 1e-5, leastCohort: 100, leastHonest: 100 };
const [FIRST, SECOND] = ["a".repeat(32), "b".repeat(32)];

test("terms out of range, contradicting themselves or unknown are refused", () => {
  for (const [bad, why] of [
    [null, /no JSON object/], [with_({ format: 2 }), /format = 2/], [with_({ extra: 1 }), /field extra/],
    [with_({ rounds: 1.5 }), /rounds = 1.5/], [with_({ delta: 0 }), /delta = 0/], [with_({ law: "gaussian" }), /law/],
    [with_({ clip_norm: "1" }), /clip_norm/], [with_({ cohort: 100 }), /cannot hold 200 honest/],
    [with_({ bits: 64 }), /bits = 64/], [with_({ queries: [] }), /no query/], [query({ share: 0.9 }), /add up to/],
    [query({ grid: 1e-9 }), /another grid|too fine|does not fit/], [with_({ bits: 20 }), /does not fit 20 bits/],
    [query({ total_variance: -1 }), /total_variance/], [query({ total_variance: 1e300 }), /total_variance/], [with_({ beta: 0.5 }), /beta/], [query({ name: "all" }), /name = all/],
    [query({ name: "count" }), /name = count/], [with_({ method: "popularity" }), /name = popularity/],
  ]) assert.throws(() => device.parseTerms(bad), why);
});

test("epsilon is the device's own, falls with noise and grows with rounds", () => {
  const epsilon = device.epsilonOf(terms);
  const more = device.parseTerms(with_({ rounds: 4 }));
  const noisier = { ...terms, queries: terms.queries.map((one) => ({ ...one, total_variance: 4 * one.total_variance })) };
  assert.ok(epsilon > 0.5 && epsilon < 1.5, String(epsilon));
  assert.ok(device.epsilonOf(more) > 1.9 * epsilon);
  assert.ok(device.epsilonOf(noisier) < 0.6 * epsilon);
});

test("a browser without the curves is refused in a sentence", async () => {
  await device.insistOnCrypto();
  const whole = crypto.subtle.generateKey;
  for (const missing of ["X25519", "Ed25519"]) {
    crypto.subtle.generateKey = async (kind, ...rest) => {
      if (kind.name === missing) throw new DOMException("unrecognised", "NotSupportedError");
      return whole.call(crypto.subtle, kind, ...rest);
    };
    await assert.rejects(device.insistOnCrypto(), new RegExp(`no ${missing}, so it cannot take part`));
  }
  crypto.subtle.generateKey = whole;
});

test("a policy refuses what costs too much or hides too little", () => {
  device.insistOnPolicy(terms, policy);
  for (const [change, why] of [
    [{ epsilonPerYear: 0.1 }, /would cost epsilon/], [{ deltaPerYear: 1e-9 }, /has delta/],
    [{ leastCohort: 301 }, /asks for 301/], [{ leastHonest: 201 }, /asks for 201/],
  ]) assert.throws(() => device.insistOnPolicy(terms, { ...policy, ...change }), why);
});

test("a ledger charges before, once, within a sliding year, and forgets all when asked", async () => {
  let now = 1e12;
  const ledger = new device.Ledger(new device.MemoryStore(), () => now);
  const charge = (run, query = 0, session = "here", begun = false) => ledger.spend(run, terms, query, session, begun);
  await assert.rejects(charge(FIRST), /no policy is set/);
  await assert.rejects(ledger.allow({ ...policy, epsilonPerYear: Infinity }), /positive number/);
  await assert.rejects(ledger.allow({}), /epsilonPerYear = undefined/);
  const cost = device.epsilonOf(terms);
  await ledger.allow({ ...policy, epsilonPerYear: 1.5 * cost });
  await ledger.admit(FIRST, terms);
  assert.equal((await ledger.state()).runs, 0);
  await charge(FIRST);
  await charge(FIRST, 1, "here", true);
  await assert.rejects(charge(FIRST, 1, "here", true), /not answered twice/);
  await assert.rejects(charge(FIRST, 1, "another tab"), /answered elsewhere/);
  await assert.rejects(ledger.admit(FIRST, terms), /charged already/);
  await assert.rejects(charge(SECOND), /is spent this year/);
  await assert.rejects(ledger.admit([FIRST], terms), /no run/);
  assert.deepEqual((({ epsilon, delta, runs }) => [epsilon, delta, runs])(await ledger.state()), [cost, 1e-6, 1]);
  now -= 900 * 24 * 3600 * 1000;
  await assert.rejects(charge(SECOND), /is spent this year/);
  now += 1266 * 24 * 3600 * 1000;
  await charge(SECOND);
  assert.equal((await ledger.state()).runs, 1);
  await assert.rejects(ledger.admit(FIRST, terms), /charged already/);
  now = NaN;
  await assert.rejects(ledger.admit("c".repeat(32), terms), /no clock/);
  await ledger.withdraw();
  assert.equal(await ledger.state(), undefined);
  await assert.rejects(charge(SECOND, 1, "here", true), /withdrawn/);
  await assert.rejects(charge(FIRST), /no policy is set/);
});

const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** A tree of two items as `privfed serve` writes it, with what a test changes in it. */
function tree({ manifest: changed = {}, arrays: other = {}, files: contents = {}, latest = {}, listed: lie = {}, after = () => {} } = {}) {
  const arrays = {
    head: Int32Array.of(1), shares: Float32Array.of(0.5), scale: Float32Array.of(1), weights: Float32Array.of(0.25),
    order: Float32Array.of(0.5, 1), beyond: new Int32Array(), beyond_shares: new Float32Array(),
    beyond_weights: new Float32Array(), ...other,
  };
  const shapes = { weights: [1, 1], beyond_weights: [0, 1] };
  const json = (content) => new TextEncoder().encode(typeof content === "string" ? content : JSON.stringify(content));
  const said = {
    "items.json": { ids: ["x", "y"], titles: null }, "guarantee.json": { statements: [], assumptions: [] },
    "card.json": { not_for: [] }, ...contents,
  };
  const files = Object.fromEntries(Object.entries(said).map(([name, content]) => [name, json(content)]));
  const listed = {};
  for (const [name, array] of Object.entries(arrays)) {
    files[`${name}.bin`] = new Uint8Array(array.buffer);
    const dtype = array instanceof Int32Array ? "int32" : "float32";
    listed[name] = { dtype, shape: shapes[name] ?? [array.length], sha256: digest(files[`${name}.bin`]), ...lie[name] };
  }
  const named = Object.fromEntries(["items.json", "guarantee.json", "card.json"].map((name) => [name, digest(files[name])]));
  const whole = { format: 1, method: "private-gram", items: 2, arrays: listed, files: named, ...changed };
  const manifest = json(typeof changed === "string" ? changed : whole);
  const version = digest(manifest);
  files["manifest.json"] = manifest;
  after(files);
  return async (path) => (path === "latest.json" ? json({ format: 1, version, ...latest }) : files[path.split("/").at(-1)]);
}

test("every field of a published model with every wrong value is refused in a sentence", async () => {
  await device.Model.load(tree());
  const wrong = [null, 1, -1, 0.5, 1e300, "1", "__proto__", true, [], [null], {}, { x: 1 }, [[1]]];
  const table = [];
  for (const value of wrong) {
    for (const name of ["format", "method", "items", "arrays", "files"]) {
      if (name !== "format" || value !== 1) table.push([name, { manifest: { [name]: value } }]);
    }
    for (const name of ["head", "weights", "order", "beyond"]) {
      for (const part of ["dtype", "shape", "sha256"]) table.push([`${name}.${part}`, { listed: { [name]: { [part]: value } } }]);
    }
    for (const name of ["items.json", "guarantee.json", "card.json"]) table.push([name, { files: { [name]: value } }]);
    table.push(["ids", { files: { "items.json": { ids: value, titles: null } } }]);
    if (value !== null) table.push(["titles", { files: { "items.json": { ids: ["x", "y"], titles: value } } }]);
    if (!Array.isArray(value) || value.length) {
      table.push(["statements", { files: { "guarantee.json": { statements: value, assumptions: [] } } }]);
      table.push(["not_for", { files: { "card.json": { not_for: value } } }]);
    }
    table.push(["version", { latest: { version: value } }], ["dossier", { latest: { dossier: value } }]);
  }
  for (const bad of [NaN, Infinity, -Infinity]) {
    for (const name of ["shares", "scale", "weights"]) table.push([name, { arrays: { [name]: Float32Array.of(bad) } }]);
    table.push(["order", { arrays: { order: Float32Array.of(bad, 1) } }]);
  }
  table.push(
    ["head", { arrays: { head: Int32Array.of(-1) } }], ["head", { arrays: { head: Int32Array.of(2) } }],
    ["shares", { arrays: { shares: Float32Array.of(-1) } }], ["ids", { files: { "items.json": { ids: ["x", "x"], titles: null } } }],
    ["json", { files: { "items.json": "[".repeat(1e5) } }], ["json", { files: { "items.json": "" } }],
    ["side", { listed: { head: { shape: [-1] } } }], ["side", { listed: { head: { shape: [2 ** 31] } } }],
    ["sides", { listed: { weights: { shape: [1] } } }], ["polluted", { files: { "items.json": '{"__proto__":{"ids":["x","y"]}}' } }],
  );
  assert.ok(table.length > 200);
  for (const [what, lie] of table) {
    await assert.rejects(device.Model.load(tree(lie)), (error) => {
      assert.ok(error instanceof device.Refused, `${what} ${JSON.stringify(lie)}: ${error.stack}`);
      assert.match(error.message, /^[^\n]{10,300}$/);
      return true;
    }, `${what} ${JSON.stringify(lie)} was taken`);
  }
  assert.equal({}.ids, undefined);
});

test("a model is checked to the last byte", async () => {
  const model = await device.Model.load(tree());
  assert.deepEqual(model.recommend(["x"]).map(({ item }) => item), ["y"]);
  assert.deepEqual(model.recommend([]).map(({ item }) => item), ["y", "x"]);
  assert.equal(model.dossier, undefined);
  const signed = await device.Model.load(tree({ latest: { dossier: "d".repeat(64) } }));
  assert.equal(signed.dossier, `dossiers/${"d".repeat(64)}/index.html`);
  assert.throws(() => model.recommend(["z"]), /no item z/);
  assert.throws(() => model.recommend(["x"], 0), /k = 0/);
  const wrong = (name) => (files) => (files[name] = Uint8Array.from([...files[name], 32]));
  for (const name of ["manifest.json", "items.json", "weights.bin", "guarantee.json"]) {
    await assert.rejects(device.Model.load(tree({ after: wrong(name) })), /is not what version/, name);
  }
  await assert.rejects(device.Model.load(tree(), "c".repeat(64)), /is not what version/);
  await assert.rejects(device.Model.load(tree(), "../../secret"), /is no version/);
  await assert.rejects(device.Model.load(tree({ manifest: { format: 2 } })), /format 2/);
  await assert.rejects(device.Model.load(tree({ manifest: { method: "fedmf" } })), /is of fedmf/);
  await assert.rejects(device.Model.load(tree({ manifest: { items: 3 } })), /names 2 of 3 items/);
});
