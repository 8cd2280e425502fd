/** Integers modulo 2^bits in unsigned machine words, their masks, and their packed form. */

import { Bytes, insist } from "./bytes.js";
import { keystream } from "./crypto.js";

export type Words = Uint8Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;

/** The ring of `bits` bits, 2 to 32. */
export class Ring {
  constructor(readonly bits: number) {
    insist(
      Number.isInteger(bits) && bits >= 2 && bits <= 32,
      `a ring of ${bits} bits was announced: this device computes in rings of 2 to 32`,
    );
  }

  /** Each whole number v as v modulo 2^bits; one that would be read as another number is refused. */
  fromIntegers(values: Float64Array): Words {
    const half = 2 ** (this.bits - 1);
    insist(
      values.every((value) => Number.isInteger(value) && value >= -half && value < half),
      `a number does not fit the ring of ${this.bits} bits: take a wider ring or a coarser grid`,
    );
    const out = this.words(values.length);
    values.forEach((value, at) => (out[at] = value < 0 ? value + 2 ** this.bits : value));
    return out;
  }

  /** Add the key streams of some masks and subtract those of others, in place. */
  async mask(elements: Words, plus: Bytes[], minus: Bytes[]): Promise<void> {
    for (const [keys, sign] of [[plus, 1], [minus, -1]] as const) {
      for (const key of keys) {
        const mask = this.view(await keystream(key, elements.byteLength));
        for (let at = 0; at < elements.length; at++) elements[at] = elements[at] + sign * mask[at];
      }
    }
    const above = 2 ** this.bits;
    if (this.bits !== 8 * elements.BYTES_PER_ELEMENT) {
      for (let at = 0; at < elements.length; at++) elements[at] = elements[at] % above;
    }
  }

  /** All elements, `bits` bits each, lowest bit first. */
  pack(elements: Words): Bytes {
    if (this.bits === 8 * elements.BYTES_PER_ELEMENT) {
      return new Uint8Array(elements.buffer.slice(elements.byteOffset, elements.byteOffset + elements.byteLength));
    }
    const out = new Uint8Array(Math.ceil((elements.length * this.bits) / 8));
    let held = 0;
    let count = 0;
    let at = 0;
    for (const element of elements) {
      held += element * 2 ** count;
      for (count += this.bits; count >= 8; count -= 8) {
        out[at++] = held % 256;
        held = Math.floor(held / 256);
      }
    }
    if (count) out[at] = held;
    return out;
  }

  private words(length: number): Words {
    return this.bits <= 8 ? new Uint8Array(length) : this.bits <= 16 ? new Uint16Array(length) : new Uint32Array(length);
  }

  private view(bytes: Bytes): Words {
    return this.bits <= 8 ? bytes : this.bits <= 16 ? new Uint16Array(bytes.buffer) : new Uint32Array(bytes.buffer);
  }
}
