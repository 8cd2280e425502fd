/** The published vectors, step by step: `node --test` in `device/`. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as device from "../dist/index.js";

const vectors = (name) => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), "utf8"));
const { fromHex, hex } = device;
const floats = (digits) => new Float32Array(fromHex(digits).buffer);
const wholes = (digits) => new Int32Array(fromHex(digits).buffer);
const bytes = (array) => hex(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));

test("scores are equal to the last bit, and lists in their order, ties included", () => {
  const { histories, cases } = vectors("recommending");
  for (const { model, scores, lists } of cases) {
    const tensors = {
      head: wholes(model.head), beyond: wholes(model.beyond), beyondShares: floats(model.beyond_shares),
      beyondWeights: floats(model.beyond_weights),
      ...Object.fromEntries(["shares", "scale", "weights", "order"].map((name) => [name, floats(model[name])])),
    };
    histories.forEach((history, at) => {
      const own = new Set(history);
      const found = device.scores(own, tensors);
      assert.equal(bytes(found), scores[at]);
      assert.deepEqual(device.ranked(own, found, found.length), lists[at]);
      assert.deepEqual(device.ranked(own, found, 3), lists[at].slice(0, 3));
    });
  }
});

test("scores of popularity are equal to the last bit, and lists in their order", () => {
  const { histories, popularity } = vectors("recommending");
  for (const { counts, scores, lists } of popularity) {
    const tensors = device.popular(floats(counts));
    histories.forEach((history, at) => {
      const found = device.scores(new Set(history), tensors);
      assert.equal(bytes(found), scores[at]);
      assert.deepEqual(device.ranked(new Set(history), found, found.length), lists[at]);
    });
  }
});

test("what a history says, its noise and its ring elements are equal to the last bit", async () => {
  const { histories, head, cases } = vectors("uploading");
  const onHead = { head: wholes(head.head), shares: floats(head.shares), scale: floats(head.scale) };
  for (const { terms: announced, uploads, rdp } of cases) {
    const terms = device.parseTerms(announced);
    for (const { query: at, history, values, key, packed } of uploads) {
      const [own, query] = [new Set(histories[history]), terms.queries[at]];
      assert.equal(bytes(device.contribution(own, terms, query, onHead)), values);
      const elements = await device.encoded(own, terms, query, onHead, fromHex(key));
      assert.equal(hex(new device.Ring(terms.bits).pack(elements)), packed);
    }
    rdp.forEach(({ orders, values }, at) => orders.forEach((order, place) => {
      const own = device.divergence(terms, terms.queries[at], order);
      assert.ok(Math.abs(own / values[place] - 1) < 1e-12);
    }));
  }
});

test("two uploads of one history under fresh keys differ", async () => {
  const { histories, cases } = vectors("uploading");
  const terms = device.parseTerms(cases[0].terms);
  const one = () => device.encoded(new Set(histories[3]), terms, terms.queries[0]);
  assert.notDeepEqual(await one(), await one());
});

test("draws of noise are equal, next to thresholds too", async () => {
  for (const one of vectors("drawing").cases) {
    const variance = device.fraction(one.total_variance, one.min_honest);
    const thresholds = device.cumulative(variance, 64);
    assert.equal(createHash("sha256").update(thresholds.join()).digest("hex"), one.thresholds);
    const table = new device.SkellamTable(variance);
    assert.deepEqual([...(await table.sample(one.draws.length, fromHex(one.key)))], one.draws);
    for (const [at, word] of one.words.entries()) {
      const found = table.lookUp(BigInt(word));
      const value = found === undefined
        ? await table.decide(BigInt(word), fromHex(one.key), at) : found - thresholds.length / 2;
      assert.equal(value, one.at_words[at]);
    }
    assert.ok(one.words.some((word) => table.lookUp(BigInt(word)) === undefined));
  }
});

test("keys, key streams and masks are equal", async () => {
  const one = vectors("masking");
  await device.insistOnCrypto();
  const [context, bound, seed] = [one.context, one.bound, one.seed].map(fromHex);
  const pair = await device.KeyPair.fromPrivate(fromHex(one.ours), fromHex(one.our_public));
  assert.equal(hex(await pair.agree(fromHex(one.theirs))), one.agreed);
  const peer = { id: one.their_id, key: fromHex(one.theirs) };
  const pairKey = await device.pairwiseMaskKey(context, pair, one.our_id, peer, bound);
  assert.equal(hex(pairKey), one.pair_key);
  const selfKey = await device.selfMaskKey(context, seed, one.our_id, bound);
  assert.equal(hex(selfKey), one.self_key);
  assert.equal(
    hex(await device.derive(seed, 96, "a purpose", context, [new Uint8Array(), device.ascii("part")])), one.derived,
  );
  for (const { bits, elements, packed } of one.masked) {
    const ring = new device.Ring(bits);
    const half = 2 ** (bits - 1);
    const words = ring.fromIntegers(Float64Array.from(elements, (e) => (e >= half ? e - 2 ** bits : e)));
    assert.deepEqual([...words], elements);
    await ring.mask(words, [selfKey, fromHex(one.plus)], [pairKey]);
    assert.equal(hex(ring.pack(words)), packed);
  }
  for (const low of one.low_order) await assert.rejects(pair.agree(fromHex(low)), /low order/);
});

test("two fresh pairs agree", async () => {
  const [one, other] = [await device.KeyPair.generate(), await device.KeyPair.generate()];
  assert.deepEqual(await one.agree(other.publicKey), await other.agree(one.publicKey));
});
