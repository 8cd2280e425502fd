/** Bytes, their hexadecimal form, and what the rest of the module refuses with. */

export type Bytes = Uint8Array<ArrayBuffer>;

/** What was given cannot be used; the message says what was given and what was expected. */
export class Refused extends Error {
  override name = "Refused";
}

/** Refuse unless `held`. */
export function insist(held: boolean, sentence: string): asserts held {
  if (!held) throw new Refused(sentence);
}

const LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/** Typed arrays are read as they lie in memory, and every format here is little-endian. */
export function insistOnLittleEndian(): void {
  insist(LITTLE, "this device keeps numbers in big-endian order, which is not supported: use another one");
}

export function concat(...parts: Uint8Array[]): Bytes {
  const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** The parts, each preceded by its length in 4 bytes, so that no two lists have the same encoding. */
export function lengthPrefixed(...parts: Uint8Array[]): Bytes {
  return concat(...parts.flatMap((part) => [bigEndian(part.length, 4), part]));
}

export function bigEndian(value: number, size: number): Bytes {
  const out = new Uint8Array(size);
  for (let at = size - 1, left = value; at >= 0; at--, left = Math.floor(left / 256)) out[at] = left % 256;
  return out;
}

export const ascii = (text: string): Bytes => new TextEncoder().encode(text) as Bytes;

export const hex = (bytes: Uint8Array): string => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");

export function fromHex(digits: string): Bytes {
  insist(/^([0-9a-f]{2})*$/.test(digits), `${digits.slice(0, 20)} are no hexadecimal digits: give an even number of them`);
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export async function sha256(bytes: Bytes): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}
