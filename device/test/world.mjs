/** A federation of four devices in one process, whose server and whose other devices do as a test tells them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import * as device from "../dist/index.js";

const { ascii, bigEndian, concat, fromHex, hex, lengthPrefixed, sha256 } = device;
export const vectors = JSON.parse(readFileSync(new URL("../vectors/uploading.json", import.meta.url), "utf8"));
export const HISTORY = new Set(vectors.histories[3]);
export const POLICY = { epsilonPerYear: 5, deltaPerYear: 1e-5, leastCohort: 4, leastHonest: 3 };
export const [RUN, OTHER] = ["a".repeat(32), "b".repeat(32)];
export const HEAD = vectors.head;
export const PEOPLE = 4;
const [US, THRESHOLD, SERVER] = [2, 3, 2 ** 32 - 1];
const encode = (content) => new TextEncoder().encode(typeof content === "string" ? content : JSON.stringify(content));

/** Terms that four people could be announced: the noise is of three, on a coarser grid, which keeps a share in a table. */
export function terms() {
  const { terms: told } = structuredClone(vectors.cases[4]);
  const coarser = (one) => ({ ...one, grid: 16 * one.grid, total_variance: one.total_variance / 256 });
  return { ...told, queries: told.queries.map(coarser), min_honest: 3, cohort: PEOPLE, colluding: 0 };
}

export const announcement = (change = {}) => ({ run: RUN, terms: terms(), ...change });
export const query = (number = 0, change = {}) =>
  ({ run: RUN, query: number, masking: "c".repeat(32), ...(number === 1 ? HEAD : {}), ...change });

/** Keys of everybody, and the file that the operator signed. */
export class World {
  static async create(ledger, change = (file) => file, signer) {
    const world = new World();
    [world.server, world.operator, world.stranger] = [1, 2, 3].map(() => undefined);
    for (const who of ["server", "operator", "stranger"]) world[who] = await device.Identity.generate();
    world.others = new Map();
    const ours = await ledger.identity();
    for (let seat = 0; seat < PEOPLE; seat++) if (seat !== US) world.others.set(seat, await device.Identity.generate());
    const file = {
      name: "people", version: 1, server: hex(world.server.publicKey), population: PEOPLE, items: 60, min_organisations: 3,
      organisations: [...Array(PEOPLE).keys()].map((seat) => ({
        name: `device-${seat}`, key: hex(seat === US ? ours.publicKey : world.others.get(seat).publicKey), users: String(seat),
      })),
    };
    world.file = encode(change(file));
    world.digest = fromHex(await sha256(world.file));
    world.signature = await (signer ?? world.operator).sign(lengthPrefixed(ascii("privfed federation file"), world.digest));
    world.counter = 0n;
    return world;
  }

  federation(key = this.operator.publicKey) {
    return device.Federation.read(this.file, this.signature, key);
  }

  /** A signed request; `change` says what lies in it. */
  async frame(stage, content, { by = this.server, seat = US, counter = ++this.counter, named = stage, version = 1 } = {}) {
    const body = content instanceof Uint8Array ? content : encode(content);
    const padded = concat(ascii(named), new Uint8Array(64 - named.length).fill(32));
    const number = fromHex(counter.toString(16).padStart(16, "0"));
    const message = concat(ascii("PFDM"), bigEndian(version, 2), bigEndian(seat, 4), number, padded, body);
    const covered = lengthPrefixed(ascii("privfed device request"), this.digest, fromHex(await sha256(message)));
    return concat(message, await by.sign(covered));
  }

  async say(participant, stage, content, change) {
    const reply = await participant.handle(stage, await this.frame(stage, content, change));
    if (stage === "announce") this.announced = reply.slice(42, -64);
    return reply.slice(42, -64);
  }
}

/** A server that has a device and three others of its own go through one masked sum, up to the device's upload. */
export class Sum {
  constructor(world, participant, asked, { keys = world.others, clients = [...world.others.keys(), US].sort() } = {}) {
    Object.assign(this, { world, participant, asked, keys, clients });
  }

  /** The device's masked elements; `before` is called when nothing but the go-ahead is missing. */
  async upload(before = async () => {}) {
    await this.begin();
    await before();
    return this.input(await this.goAhead());
  }

  async begin() {
    const { world, participant, asked } = this;
    const request = encode(asked);
    const layout = await world.say(participant, "query", request);
    assert.equal(hex(layout), await sha256(concat(await world.announced, request)));
    const told = terms().queries[asked.query];
    const length = told?.coordinates ?? 1;
    const run = fromHex(asked.masking);
    this.terms = concat(
      run, bigEndian(0, 8), bigEndian(length, 8), bigEndian(0, 4), bigEndian(THRESHOLD, 4),
      Uint8Array.of(terms().bits, 1, 1, 0), layout,
    );
    const first = await this.pass(1, this.terms);
    this.own = [first.slice(0, 32), first.slice(32, 64)];
    await this.roster();
    const sealed = await this.pass(3, concat(bigEndian(this.clients.length, 4), ...this.clients.map((id) => bigEndian(id, 4)), ...this.advertised));
    this.sealed = sealed;
  }

  async roster() {
    this.pairs = new Map();
    this.advertised = [];
    const context = fromHex(await sha256(concat(ascii("secure_agg masking 3"), this.terms)));
    for (const id of this.clients.filter((one) => one !== US)) {
      const [mask, channel] = [await device.KeyPair.generate(), await device.KeyPair.generate()];
      this.pairs.set(id, { mask, channel });
      const said = lengthPrefixed(ascii("secure_agg advertisement"), context, bigEndian(id, 4), mask.publicKey, channel.publicKey);
      this.advertised.push(mask.publicKey, channel.publicKey, await this.keys.get(id).sign(said));
    }
    const ids = concat(...this.clients.map((id) => bigEndian(id, 4)));
    this.context = fromHex(await sha256(concat(context, ids)));
  }

  flags() {
    return Uint8Array.of(2 ** this.clients.length - 1);
  }

  async goAhead() {
    const sealed = [];
    for (const id of this.clients.filter((one) => one !== US)) {
      const { mask, channel } = this.pairs.get(id);
      const [low, high] = id < US ? [[id, channel.publicKey], [US, this.own[1]]] : [[US, this.own[1]], [id, channel.publicKey]];
      const parts = [bigEndian(low[0], 4), bigEndian(high[0], 4), low[1], high[1]];
      const both = await device.derive(await channel.agree(this.own[1]), 64, "shares", this.context, parts);
      const key = await crypto.subtle.importKey("raw", id < US ? both.slice(0, 32) : both.slice(32), "AES-GCM", false, ["encrypt"]);
      const additionalData = lengthPrefixed(
        ascii("secure_agg shares"), this.context, bigEndian(id, 4), bigEndian(US, 4), mask.publicKey, this.own[0],
      );
      const iv = new Uint8Array(12);
      sealed.push(new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv, additionalData }, key, new Uint8Array(66))));
    }
    await this.pass(5, concat(this.flags(), ...sealed));
    const checked = lengthPrefixed(ascii("secure_agg check"), this.context, Uint8Array.from(this.clients, () => 1));
    const signed = [];
    for (const id of this.clients.filter((one) => one !== US)) signed.push(await this.keys.get(id).sign(checked));
    return concat(this.flags(), ...signed);
  }

  input(goAhead) {
    return this.pass(7, goAhead);
  }

  /** One message of the masked sum; returns the body of the reply. */
  async pass(stage, body) {
    const header = concat(
      ascii("SAgg"), bigEndian(3, 2), bigEndian(stage, 2), fromHex(this.asked.masking), bigEndian(0, 8), bigEndian(SERVER, 4), bigEndian(US, 4),
    );
    return (await this.world.say(this.participant, "masking", concat(header, body))).slice(40);
  }
}
