/** Keys, key streams and masks, by WebCrypto alone: the derivations of `secure_agg`, bit for bit. */

import { ascii, bigEndian, Bytes, concat, fromHex, hex, insist, lengthPrefixed, Refused } from "./bytes.js";

export const KEY_BYTES = 32;
const PKCS8 = fromHex("302e020100300506032b656e04220420");
const NOISE_CONTEXT = concat(ascii("secure_agg.noise"), new Uint8Array(16));
const CHUNK = 1 << 24;

/** A client's id and the public key that it uses. */
export type Party = { id: number; key: Bytes };

/** Refuse a browser that lacks what masks need, in one sentence, before anything private is touched. */
export async function insistOnCrypto(): Promise<void> {
  insist(
    typeof crypto !== "undefined" && crypto.subtle !== undefined,
    "this page has no WebCrypto: open it over https or on this machine itself",
  );
  for (const [name, uses] of [["X25519", ["deriveBits"]], ["Ed25519", ["sign", "verify"]]] as const) {
    try {
      await crypto.subtle.generateKey({ name }, false, [...uses]);
    } catch {
      throw new Refused(`this browser has no ${name}, so it cannot take part; it can still recommend: update the browser`);
    }
  }
}

/** Fresh bytes of the operating system. */
export function freshBytes(count: number): Bytes {
  return crypto.getRandomValues(new Uint8Array(count));
}

/** HKDF-SHA256 of a secret for one purpose. */
export async function derive(
  secret: Bytes, length: number, label: string, context: Bytes, parts: Bytes[] = [],
): Promise<Bytes> {
  insist(context.length === KEY_BYTES, `a context of ${context.length} bytes was given: it has ${KEY_BYTES}`);
  const info = lengthPrefixed(ascii(label), ...parts);
  const key = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  const bits = await crypto.subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt: context, info }, key, 8 * length);
  return new Uint8Array(bits);
}

/** The key of stream `number` for one purpose of noise. */
export function subkey(key: Bytes, purpose: string, number: number): Promise<Bytes> {
  return derive(key, KEY_BYTES, purpose, NOISE_CONTEXT, [bigEndian(number, 8)]);
}

/** The first `count` bytes of the AES-256 counter-mode key stream of a key that makes one stream only. */
export async function keystream(key: Bytes, count: number): Promise<Bytes> {
  insist(key.length === KEY_BYTES, `a key of ${key.length} bytes was given: AES-256 takes ${KEY_BYTES}`);
  const cipher = await crypto.subtle.importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  const out = new Uint8Array(count);
  for (let start = 0; start < count; start += CHUNK) {
    const counter = bigEndian(start / 16, 16);
    const zeros = new Uint8Array(Math.min(CHUNK, count - start));
    out.set(new Uint8Array(await crypto.subtle.encrypt({ name: "AES-CTR", counter, length: 128 }, cipher, zeros)), start);
  }
  return out;
}

/** An X25519 key pair; the private half of a fresh one cannot be read out of the browser. */
export class KeyPair {
  private constructor(private readonly secret: CryptoKey, readonly publicKey: Bytes) {}

  static async generate(): Promise<KeyPair> {
    const pair = (await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"])) as CryptoKeyPair;
    return new KeyPair(pair.privateKey, new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey)));
  }

  /** A fresh pair and its 32 private bytes, for the one key of a round that is secret-shared. */
  static async generateShareable(): Promise<[KeyPair, Bytes]> {
    const pair = (await crypto.subtle.generateKey({ name: "X25519" }, true, ["deriveBits"])) as CryptoKeyPair;
    const secret = new Uint8Array(await crypto.subtle.exportKey("pkcs8", pair.privateKey)).slice(-KEY_BYTES);
    const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    return [await KeyPair.fromPrivate(secret, publicKey), secret];
  }

  /** The pair of a private key of 32 bytes, whose public half is given too; for published vectors. */
  static async fromPrivate(secret: Bytes, publicKey: Bytes): Promise<KeyPair> {
    const key = await crypto.subtle.importKey("pkcs8", concat(PKCS8, secret), { name: "X25519" }, false, ["deriveBits"]);
    return new KeyPair(key, publicKey);
  }

  /** The 32 secret bytes that the holders of both pairs compute; a public key of low order is refused. */
  async agree(other: Bytes): Promise<Bytes> {
    insist(other.length === KEY_BYTES, `a public key of ${other.length} bytes was given: X25519 keys have ${KEY_BYTES}`);
    const low = `the public key ${hex(other)} is of low order, so the secret would be public: drop its sender`;
    try {
      const theirs = await crypto.subtle.importKey("raw", other, { name: "X25519" }, false, []);
      const agreed = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: theirs }, this.secret, 256));
      insist(agreed.some((one) => one !== 0), low);
      return agreed;
    } catch {
      throw new Refused(low);
    }
  }
}

/** Key of the mask that two clients share; the one with the lower id adds the mask, the other subtracts it. */
export async function pairwiseMaskKey(
  context: Bytes, pair: KeyPair, ours: number, theirs: Party, bound: Bytes,
): Promise<Bytes> {
  const [low, high] = [{ id: ours, key: pair.publicKey }, theirs].sort((a, b) => a.id - b.id);
  const parts = [bigEndian(low.id, 4), bigEndian(high.id, 4), low.key, high.key, bound];
  return derive(await pair.agree(theirs.key), KEY_BYTES, "pair mask", context, parts);
}

/** Key of a client's own mask. */
export function selfMaskKey(context: Bytes, seed: Bytes, client: number, bound: Bytes): Promise<Bytes> {
  return derive(seed, KEY_BYTES, "self mask", context, [bigEndian(client, 4), bound]);
}
