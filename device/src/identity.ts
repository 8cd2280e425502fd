/** Signing keys of Ed25519, by WebCrypto. */

import { Bytes } from "./bytes.js";

/** A signing key that outlives rounds; its public half is told outside of the protocol. */
export class Identity {
  private constructor(private readonly secret: CryptoKey, readonly publicKey: Bytes) {}

  /** A fresh one, whose private half cannot be read out of the browser. */
  static async generate(): Promise<Identity> {
    const pair = (await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"])) as CryptoKeyPair;
    return new Identity(pair.privateKey, new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey)));
  }

  /** The identity that a store kept, as which it comes back without its class. */
  static from({ secret, publicKey }: Identity): Identity {
    return new Identity(secret, publicKey);
  }

  async sign(message: Bytes): Promise<Bytes> {
    return new Uint8Array(await crypto.subtle.sign({ name: "Ed25519" }, this.secret, message));
  }
}

/** Whether a signature is of that key over that message. */
export async function verified(key: Bytes, signature: Bytes, message: Bytes): Promise<boolean> {
  try {
    const imported = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
    return await crypto.subtle.verify({ name: "Ed25519" }, imported, signature, message);
  } catch {
    return false;
  }
}
