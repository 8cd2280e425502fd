/**
 * One device in one masked sum: the client of `secure_agg.masking`, message for message, under signed terms in the
 * complete graph.
 *
 *     advertise(invitation)   two fresh key pairs, signed
 *     share(roster)           both secrets, secret-shared among the others and sealed for each
 *     check(delivery)         a signature that all shares are shares
 *     mask(go-ahead)          the vector under its masks
 *     confirm(survivors)      a signature over who is in the sum
 *     unmask(request)         one share of each other, once
 *
 * Whatever is not as it must be ends the round here, with every secret forgotten: to the others the device dropped out.
 * It keeps nothing over a reload, so a tab that is closed drops out too. Python's client also says of whom it complains;
 * this one leaves.
 */

import { ascii, bigEndian, Bytes, concat, fromHex, hex, insist, lengthPrefixed, refusal } from "./bytes.js";
import { derive, freshBytes, KEY_BYTES, KeyPair, pairwiseMaskKey, selfMaskKey } from "./crypto.js";
import { Identity, verified } from "./identity.js";
import { Ring, Words } from "./ring.js";

/** What this person insists on, whatever a server proposes. */
export type MaskingRules = { minClients: number; minThreshold: number; maxCorrupt: number };

/** What was agreed outside of the round: who takes part under which key, and what the elements mean. */
export type Session = {
  client: number; run: Bytes; lastRound: number; length: number; bits: number; layout: Bytes; directory: ReadonlyMap<number, Bytes>;
};

type MaskingTerms = { round: number; length: number; threshold: number; bits: number; bytes: Bytes };
type Advertisement = { mask: Bytes; channel: Bytes };
type Bits = boolean[];

const MAGIC = ascii("SAgg");
const VERSION = 3;
const SERVER = 2 ** 32 - 1;
const [HEADER, TERMS, SIGNATURE, SHARE, SEALED] = [40, 76, 64, 33, 82];
const AES256 = 1;
const PRIME = 2n ** 256n + 297n;
const FIELD = 2n ** 255n - 19n;
const STAGES = [
  "invitation", "advertisement", "roster", "shares", "delivery", "check", "go-ahead", "masked input", "survivors",
  "confirmation", "request", "reveal",
] as const;
export type Stage = (typeof STAGES)[number];

async function insistOnSignature(key: Bytes | undefined, signature: Bytes, message: Bytes, whose: number): Promise<void> {
  insist(key !== undefined, `the directory knows no client ${whose}: leave this round`);
  const right = await verified(key, signature, message);
  insist(right, `a signature is not of client ${whose} over what it should be: leave this round`);
}

/** One device in one round. */
export class MaskingClient {
  private awaits: Stage | "nothing" = "invitation";
  private terms!: MaskingTerms;
  private pairs?: { mask: KeyPair; channel: KeyPair; maskSecret: Bytes };
  private seed?: Bytes;
  private roster: number[] = [];
  private context!: Bytes;
  private readonly theirs = new Map<number, Advertisement>();
  private readonly inbound = new Map<number, Bytes>();
  private held = new Map<number, Bytes>();
  private listed = new Set<number>();
  private confirmed = new Set<number>();
  private bound!: Bytes;

  constructor(
    private readonly session: Session, private readonly rules: MaskingRules, private readonly identity: Identity,
    private readonly vector: () => Promise<Words>, private readonly sent: Bytes = new Uint8Array(32),
  ) {}

  /** Answer the server's next message; whatever is wrong ends the round, with every secret forgotten. */
  async answer(message: Bytes): Promise<Bytes> {
    try {
      const [stage, body] = this.open(message);
      insist(stage === this.awaits, `got the ${stage}, and the ${this.awaits} is due`);
      this.awaits = "nothing";
      switch (stage) {
        case "invitation": return await this.advertise(body);
        case "roster": return await this.share(new Reader(body));
        case "delivery": return await this.check(new Reader(body));
        case "go-ahead": return await this.mask(new Reader(body));
        case "survivors": return await this.confirm(new Reader(body));
        case "request": return await this.unmask(new Reader(body));
        default: insist(false, `the ${stage} is no message to a client`);
      }
    } catch (refused) {
      this.forget();
      throw refusal(refused, "a message of the masked sum");
    }
  }

  private open(message: Bytes): [Stage, Bytes] {
    insist(message.length >= HEADER, `${message.length} bytes arrived: a message has ${HEADER} at least`);
    const view = new DataView(message.buffer, message.byteOffset);
    insist(hex(message.slice(0, 4)) === hex(MAGIC), "these bytes are no message of a masked sum");
    insist(view.getUint16(4) === VERSION, `the message is of version ${view.getUint16(4)}, and this device speaks ${VERSION}`);
    insist(hex(message.slice(8, 24)) === hex(this.session.run), "the message is of another run");
    const [from, to] = [view.getUint32(32), view.getUint32(36)];
    insist(from === SERVER && to === this.session.client, "the message is not from the server to this device");
    const round = Number(view.getBigUint64(24));
    insist(this.terms === undefined || round === this.terms.round, `the message is of round ${round}`);
    return [STAGES[view.getUint16(6) - 1], message.slice(HEADER)];
  }

  private reply(stage: Stage, then: Stage | "nothing", ...body: Bytes[]): Bytes {
    this.awaits = then;
    const number = bigEndian(STAGES.indexOf(stage) + 1, 2);
    const { run, client } = this.session;
    return concat(
      MAGIC, bigEndian(VERSION, 2), number, run, bigEndian(this.terms.round, 8), bigEndian(client, 4), bigEndian(SERVER, 4),
      ...body,
    );
  }

  private async advertise(body: Bytes): Promise<Bytes> {
    insist(body.length === TERMS, `the terms have ${body.length} bytes: ${TERMS} were expected`);
    const view = new DataView(body.buffer, body.byteOffset);
    const [round, length] = [Number(view.getBigUint64(16)), Number(view.getBigUint64(24))];
    const [neighbours, threshold] = [view.getUint32(32), view.getUint32(36)];
    const [bits, suite, signed, pad] = body.slice(40, 44);
    const { session, rules } = this;
    insist(hex(body.slice(0, 16)) === hex(session.run) && pad === 0, "the terms are of another run");
    insist(round > session.lastRound && Number.isSafeInteger(round), `round ${round} was, or is no round`);
    insist(signed === 1, "the terms are unsigned, so a server that lies could open this upload: do not take part");
    insist(neighbours === 0 && suite === AES256, "the terms are of a sparse graph or another cipher than AES-256");
    insist(length === session.length && bits === session.bits, "the terms are of another vector than was announced");
    insist(hex(body.slice(44)) === hex(session.layout), "the terms give the elements another meaning than was announced");
    insist(threshold >= rules.minThreshold, `the threshold is ${threshold}, and your rules ask for ${rules.minThreshold}`);
    this.terms = { round, length, threshold, bits, bytes: body };
    const [maskPair, maskSecret] = await KeyPair.generateShareable();
    this.pairs = { mask: maskPair, maskSecret, channel: await KeyPair.generate() };
    const [mask, channel] = [maskPair.publicKey, this.pairs.channel.publicKey];
    const signature = await this.identity.sign(await this.advertisement(session.client, { mask, channel }));
    return this.reply("advertisement", "roster", mask, channel, signature);
  }

  private async share(body: Reader): Promise<Bytes> {
    const { client, directory } = this.session;
    const count = body.number(4);
    insist(count <= 2 ** 16, `${count} clients are on the roster`);
    this.roster = Array.from({ length: count }, () => body.number(4));
    insist(this.roster.every((id, at) => at === 0 || id > this.roster[at - 1]), "the roster is not in rising order");
    insist(this.roster.includes(client), "this device advertised and is not on the roster");
    this.insistOnRoster(count);
    const { mask, channel, maskSecret } = this.mine();
    const seen = new Set([hex(mask.publicKey), hex(channel.publicKey)]);
    for (const id of this.others()) {
      const advertised = { mask: body.take(KEY_BYTES), channel: body.take(KEY_BYTES) };
      for (const key of [advertised.mask, advertised.channel]) {
        insist(littleEndian(key) < FIELD && !seen.has(hex(key)), `client ${id} advertises a key that is none of its own`);
        seen.add(hex(key));
      }
      await insistOnSignature(directory.get(id), body.take(SIGNATURE), await this.advertisement(id, advertised), id);
      this.theirs.set(id, advertised);
    }
    body.end();
    const ids = concat(...this.roster.map((id) => bigEndian(id, 4)));
    this.context = await digest(concat(await this.termsContext(), ids));
    this.seed = freshBytes(KEY_BYTES);
    const keyShares = split(maskSecret, this.terms.threshold, count - 1);
    const seedShares = split(this.seed, this.terms.threshold, count - 1);
    const sealed: Bytes[] = [];
    for (const [at, id] of this.others().entries()) {
      const [outbound, inbound] = await this.channelKeys(id);
      this.inbound.set(id, inbound);
      const said = this.associated(client, mask.publicKey, id, this.theirs.get(id)!.mask);
      sealed.push(await gcm("encrypt", outbound, concat(keyShares[at], seedShares[at]), said));
    }
    const commitment = await derive(this.seed, KEY_BYTES, "self mask commitment", this.context, [bigEndian(client, 4)]);
    return this.reply("shares", "delivery", commitment, ...sealed);
  }

  private async check(body: Reader): Promise<Bytes> {
    const shared = body.bits(this.roster.length);
    this.listed = this.members(shared);
    const senders = this.others().filter((id) => this.listed.has(id));
    this.insistOnPartners(senders.length, this.listed);
    for (const id of senders) {
      const said = this.associated(id, this.theirs.get(id)!.mask, this.session.client, this.mine().mask.publicKey);
      const pair = await gcm("decrypt", this.inbound.get(id)!, body.take(SEALED), said);
      const shares = [pair.slice(0, SHARE), pair.slice(SHARE)];
      insist(shares.every((one) => one.length === SHARE && number(one) < PRIME), `client ${id} sealed no pair of shares`);
      this.held.set(id, pair);
    }
    body.end();
    return this.reply("check", "go-ahead", await this.identity.sign(this.checkMessage(shared)));
  }

  private async mask(body: Reader): Promise<Bytes> {
    const checked = this.members(body.bits(this.roster.length));
    insist([...checked].every((id) => this.listed.has(id)), "the go-ahead names somebody who never shared");
    const around = this.others().filter((id) => checked.has(id));
    this.insistOnPartners(around.length, checked);
    const signed = this.checkMessage(this.flags(this.listed));
    for (const id of around) await insistOnSignature(this.session.directory.get(id), body.take(SIGNATURE), signed, id);
    body.end();
    this.listed = checked;
    this.held = new Map([...this.held].filter(([id]) => checked.has(id)));
    this.bound = this.sent;
    const [ring, elements] = [new Ring(this.terms.bits), await this.vector()];
    insist(elements.length === this.terms.length, `the vector has ${elements.length} elements, not ${this.terms.length}`);
    const { client } = this.session;
    const plus = [await selfMaskKey(this.context, this.seed!, client, this.bound)];
    const minus: Bytes[] = [];
    for (const id of around) {
      const peer = { id, key: this.theirs.get(id)!.mask };
      (client < id ? plus : minus).push(await pairwiseMaskKey(this.context, this.mine().mask, client, peer, this.bound));
    }
    const masked = elements.slice() as Words;
    await ring.mask(masked, plus, minus);
    this.seed?.fill(0);
    this.pairs?.maskSecret.fill(0);
    this.seed = this.pairs = undefined;
    return this.reply("masked input", "survivors", ring.pack(masked));
  }

  private async confirm(body: Reader): Promise<Bytes> {
    const alive = body.bits(this.roster.length);
    body.end();
    this.confirmed = this.members(alive);
    insist([...this.confirmed].every((id) => this.listed.has(id)), "a survivor is named that never checked");
    this.insistOnPartners(this.confirmed.size - 1, this.confirmed);
    return this.reply("confirmation", "request", await this.identity.sign(this.survivorsMessage(alive)));
  }

  private async unmask(body: Reader): Promise<Bytes> {
    const others = this.others();
    const [survived, dropped, confirming] = [0, 1, 2].map(() => body.bits(others.length));
    const signed = this.survivorsMessage(this.flags(this.confirmed));
    let confirmations = 0;
    for (const [at, id] of others.entries()) {
      insist(!(survived[at] && dropped[at]), `client ${id} is named as survived and as dropped: both would unmask it`);
      insist(!(survived[at] || dropped[at]) || this.held.has(id), `client ${id} never shared with this device`);
      insist(!survived[at] || this.confirmed.has(id), "the request contradicts the survivors that were confirmed");
      insist(!dropped[at] || !this.confirmed.has(id), "the request contradicts the survivors that were confirmed");
      if (!confirming[at]) continue;
      insist(this.confirmed.has(id), "a confirmation is by somebody who did not survive");
      await insistOnSignature(this.session.directory.get(id), body.take(SIGNATURE), signed, id);
      confirmations += 1;
    }
    body.end();
    this.insistOnPartners(survived.filter(Boolean).length, this.confirmed);
    insist(confirmations >= this.terms.threshold, `${confirmations} confirmed the survivors: too few`);
    const shares = others.flatMap((id, at) => {
      const pair = this.held.get(id)!;
      return survived[at] ? [pair.slice(SHARE)] : dropped[at] ? [pair.slice(0, SHARE)] : [];
    });
    this.forget();
    return this.reply("reveal", "nothing", ...shares);
  }

  private forget(): void {
    this.awaits = "nothing";
    this.seed?.fill(0);
    this.pairs?.maskSecret.fill(0);
    for (const pair of this.held.values()) pair.fill(0);
    this.seed = this.pairs = undefined;
    this.held = new Map();
    this.inbound.clear();
  }

  private mine(): { mask: KeyPair; channel: KeyPair; maskSecret: Bytes } {
    insist(this.pairs !== undefined, "this device's keys of the round are gone");
    return this.pairs;
  }

  private others = (): number[] => this.roster.filter((id) => id !== this.session.client);
  private flags = (members: ReadonlySet<number>): Bits => this.roster.map((id) => members.has(id));

  private members(flags: Bits): Set<number> {
    return new Set(this.roster.filter((_, at) => flags[at]));
  }

  private insistOnRoster(count: number): void {
    const { threshold } = this.terms;
    insist(count >= this.rules.minClients, `${count} clients are on the roster, and your rules ask for ${this.rules.minClients}`);
    insist((count - 1) / 2 < threshold && threshold < count, `a threshold of ${threshold} of ${count} keeps no secrets apart`);
    insist(2 * threshold - count >= this.rules.maxCorrupt, `a threshold of ${threshold} of ${count} allows too few to collude`);
  }

  private insistOnPartners(others: number, all: ReadonlySet<number>): void {
    insist(all.has(this.session.client), "this device did its part and is not among those who did");
    insist(others >= this.terms.threshold, `${others} others are left, and the threshold is ${this.terms.threshold}`);
    insist(all.size >= this.rules.minClients, `${all.size} are left, and your rules ask for ${this.rules.minClients}`);
  }

  private termsContext(): Promise<Bytes> {
    return digest(concat(ascii(`secure_agg masking ${VERSION}`), this.terms.bytes));
  }

  private async advertisement(id: number, keys: Advertisement): Promise<Bytes> {
    const context = await this.termsContext();
    return lengthPrefixed(ascii("secure_agg advertisement"), context, bigEndian(id, 4), keys.mask, keys.channel);
  }

  private checkMessage(shared: Bits): Bytes {
    return lengthPrefixed(ascii("secure_agg check"), this.context, octets(shared));
  }

  private survivorsMessage(alive: Bits): Bytes {
    const checked = octets(this.flags(this.listed));
    return lengthPrefixed(ascii("secure_agg survivors"), this.context, this.bound, checked, octets(alive));
  }

  private associated(sender: number, senderKey: Bytes, receiver: number, receiverKey: Bytes): Bytes {
    const ids = [bigEndian(sender, 4), bigEndian(receiver, 4)];
    return lengthPrefixed(ascii("secure_agg shares"), this.context, ...ids, senderKey, receiverKey);
  }

  private async channelKeys(id: number): Promise<[Bytes, Bytes]> {
    const { channel } = this.mine();
    const ours = { id: this.session.client, key: channel.publicKey };
    const theirs = { id, key: this.theirs.get(id)!.channel };
    const [low, high] = ours.id < id ? [ours, theirs] : [theirs, ours];
    const parts = [bigEndian(low.id, 4), bigEndian(high.id, 4), low.key, high.key];
    const both = await derive(await channel.agree(theirs.key), 2 * KEY_BYTES, "shares", this.context, parts);
    const [up, down] = [both.slice(0, KEY_BYTES), both.slice(KEY_BYTES)];
    return ours.id < id ? [up, down] : [down, up];
  }
}

/** Shares of 32 bytes, of which any `threshold` rebuild it; share n is of party n + 1. */
export function split(secret: Bytes, threshold: number, shares: number): Bytes[] {
  const coefficients = Array.from({ length: threshold - 1 }, below).concat([number(secret)]);
  return Array.from({ length: shares }, (_, party) => {
    const at = BigInt(party + 1);
    return fromHex(coefficients.reduce((sum, one) => (sum * at + one) % PRIME, 0n).toString(16).padStart(2 * SHARE, "0"));
  });
}

/** A uniform number of the field. */
function below(): bigint {
  for (;;) {
    const bytes = freshBytes(SHARE);
    bytes[0] &= 1;
    if (number(bytes) < PRIME) return number(bytes);
  }
}

const number = (bytes: Bytes): bigint => BigInt(`0x${hex(bytes)}`);
const littleEndian = (bytes: Bytes): bigint => number(bytes.slice().reverse());
const octets = (flags: Bits): Bytes => Uint8Array.from(flags, Number);
const digest = async (bytes: Bytes): Promise<Bytes> => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** AES-256-GCM with a key that seals one message only, so the nonce may be zero. */
async function gcm(what: "encrypt" | "decrypt", key: Bytes, bytes: Bytes, additionalData: Bytes): Promise<Bytes> {
  const cipher = await crypto.subtle.importKey("raw", key, "AES-GCM", false, [what]);
  return new Uint8Array(await crypto.subtle[what]({ name: "AES-GCM", iv: new Uint8Array(12), additionalData }, cipher, bytes));
}

/** A body, read from its first byte to its last. */
class Reader {
  private at = 0;

  constructor(private readonly bytes: Bytes) {}

  take(size: number): Bytes {
    insist(this.at + size <= this.bytes.length, "the message ends too early");
    this.at += size;
    return this.bytes.slice(this.at - size, this.at);
  }

  number(size: number): number {
    return this.take(size).reduce((value, one) => value * 256 + one, 0);
  }

  bits(count: number): Bits {
    const packed = this.take(Math.ceil(count / 8));
    const flags = Array.from({ length: 8 * packed.length }, (_, at) => ((packed[at >> 3] >> (at & 7)) & 1) === 1);
    insist(!flags.slice(count).includes(true), `the message sets flags beyond its ${count} parties`);
    return flags.slice(0, count);
  }

  end(): void {
    insist(this.at === this.bytes.length, "the message goes on after its end");
  }
}
