/**
 * Who takes part, as an operator signed it, and the messages that are signed under it: `engines/nodes`, bit for bit.
 *
 *     request   "PFDM", version (2 bytes), seat (4), counter (8), stage (64, ASCII, padded), content, signature (64)
 *     reply     "PFDM", version, seat, SHA-256 of the request without its signature (32), content, signature
 *
 * The owner has the operator's public key from the operator. A server can invite nobody whom the operator did not list,
 * and whoever passes messages on can change, repeat or redirect none.
 */

import { ascii, bigEndian, Bytes, concat, fromHex, hex, insist, lengthPrefixed, object, sha256, shown } from "./bytes.js";
import { Identity, verified } from "./identity.js";

const [MAGIC, VERSION, KEY, SIGNATURE, STAGE, HEADER] = [ascii("PFDM"), 1, 32, 64, 64, 82];
const FEWEST = 3;

type File = {
  name: string; version: number; server: string; population: number; items: number; min_organisations?: number;
  corrupt?: number; organisations: { name: string; key: string; users: string }[];
};

/** What a person is given to take part: where to ask, a token, what the operator signed, and ids of items in their order. */
export type Invitation = { address: string; token: string; federation: string; signature: string; items: string[] };

/** Read an invitation; nothing in it is believed but what the operator signed. */
export function readInvitation(text: string): Invitation {
  const found = object(ascii(text), "the invitation", ["address", "token", "federation", "signature", "items"]) as Invitation;
  const { address, token, federation, signature, items } = found;
  const texts = [address, token, federation, signature].every((one) => typeof one === "string");
  insist(texts && Array.isArray(items) && items.every((one) => typeof one === "string"), "the invitation is none: get it again");
  insist(/^https?:\/\//.test(address) && URL.canParse(address), `the invitation names no server: ${shown(address)}`);
  return found;
}

/** The federation file of a server whose every organisation is one person's device. */
export class Federation {
  private constructor(
    readonly digest: Bytes, readonly name: string, readonly version: number, readonly items: number,
    readonly minClients: number, readonly corrupt: number, private readonly server: Bytes,
    readonly directory: ReadonlyMap<number, Bytes>,
  ) {}

  /** Read what the operator signed; `file` are the bytes whose SHA-256 is the federation's digest. */
  static async read(file: Bytes, signature: Bytes, operator: Bytes): Promise<Federation> {
    const digest = fromHex(await sha256(file));
    const signed = await verified(operator, signature, lengthPrefixed(ascii("privfed federation file"), digest));
    insist(signed, "the federation file is not signed by the operator whose key this device has: do not take part");
    const what = "the federation file";
    const found = object(
      file, what, ["name", "version", "server", "population", "items", "organisations"],
      ["min_protocol", "min_organisations", "corrupt", "mechanisms", "build"],
    ) as File;
    const { organisations: devices, min_organisations: least = FEWEST, corrupt = 1 } = found;
    const whole = [found.version, found.population, found.items, least, corrupt];
    insist(whole.every((one) => Number.isSafeInteger(one) && one >= 0), `${what} has a number that is none`);
    insist(Array.isArray(devices) && devices.length < 2 ** 16, `${what} lists no devices, or too many`);
    const right = devices.every((one, seat) => one?.users === String(seat) && isKey(one.key));
    insist(right && isKey(found.server) && devices.length === found.population, `${what} is not of one person for each seat`);
    const keys = devices.map((one) => one.key);
    insist(new Set([found.server, ...keys]).size === keys.length + 1, `in ${what} two parties have the same key`);
    return new Federation(
      digest, String(found.name), found.version, found.items, Math.max(least, FEWEST), corrupt, fromHex(found.server),
      new Map(keys.map((key, seat) => [seat, fromHex(key)])),
    );
  }

  /** The seat of a device. */
  seatOf(key: Bytes): number {
    const found = [...this.directory].find(([, one]) => hex(one) === hex(key));
    insist(found !== undefined, `${this.name} lists no device with the key ${hex(key)}: send it to the operator`);
    return found[0];
  }

  /** Open a request to a seat: the server signed it, for this stage, and it is newer than the last. */
  async open(frame: Bytes, seat: number, stage: string, last: bigint): Promise<{ counter: bigint; content: Bytes; message: Bytes }> {
    insist(frame.length >= HEADER + SIGNATURE, `a request of ${frame.length} bytes arrived, which is too short`);
    const message = frame.slice(0, -SIGNATURE);
    insist(hex(message.slice(0, 4)) === hex(MAGIC), "these bytes are no request to a device");
    const view = new DataView(message.buffer);
    insist(view.getUint16(4) === VERSION, `the request is of version ${view.getUint16(4)}, and this device speaks ${VERSION}`);
    const right = await verified(this.server, frame.slice(-SIGNATURE), await this.covered("device request", message));
    insist(right, `the request is not signed by the server of ${this.name}: it is not answered`);
    insist(view.getUint32(6) === seat, `the request is to seat ${view.getUint32(6)}: it is not answered`);
    const counter = view.getBigUint64(10);
    insist(counter > last, "the request was sent before: it is not answered twice");
    const named = new TextDecoder().decode(message.slice(HEADER - STAGE, HEADER)).trimEnd();
    insist(named === stage, `the request is of the stage ${shown(named)}, and came as ${shown(stage)}`);
    return { counter, content: message.slice(HEADER), message };
  }

  /** A signed reply of a seat to the message of a request. */
  async reply(identity: Identity, seat: number, message: Bytes, content: Bytes): Promise<Bytes> {
    const asked = fromHex(await sha256(message));
    const reply = concat(MAGIC, bigEndian(VERSION, 2), bigEndian(seat, 4), asked, content);
    return concat(reply, await identity.sign(await this.covered("device reply", reply)));
  }

  private async covered(kind: string, message: Bytes): Promise<Bytes> {
    return lengthPrefixed(ascii(`privfed ${kind}`), this.digest, fromHex(await sha256(message)));
  }
}

const isKey = (key: unknown): boolean => typeof key === "string" && key.length === 2 * KEY && /^[0-9a-f]*$/.test(key);
