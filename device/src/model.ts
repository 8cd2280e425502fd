/** The published model: downloaded from wherever it is served, checked to the last byte, and asked on the device. */

import { bounded, Bytes, insist, insistOnLittleEndian, refusal, sha256, shown } from "./bytes.js";
import { insistOnHead, popular, ranked, scores, Tensors } from "./history.js";

export const FORMAT = 1;
const [MOST_ITEMS, LONGEST] = [2 ** 24, 2 ** 30];
const POPULARITY = "popularity";
const METHODS = ["private-gram", "private-gram-year", POPULARITY];
const KINDS = { float32: Float32Array, int32: Int32Array };

/** What is guaranteed, as far as a page shows it. */
export type Guarantee = {
  epsilon: number | string; delta: number; unit: string; neighbours: string; trust: string; per: string;
  statements: string[]; assumptions: string[];
};

/** What the model was made of. */
export type Card = { method: string; title: string; source: string; data: string; synthetic: boolean; not_for: string[] };

/** One line of a list. */
export type Recommended = { item: string; title: string | null; score: number };

type Listed = { dtype: keyof typeof KINDS; shape: number[]; sha256: string };
type Manifest = {
  format: number; method: string; items: number; arrays: Record<string, Listed>; files: Record<string, string>;
};

/** Gets a file of the published tree by its path. */
export type Fetch = (path: string) => Promise<Bytes>;

/** Downloads below an address; a request says which file is wanted and nothing else. */
export function from(address: string): Fetch {
  return async (path) => {
    const url = new URL(path, address.endsWith("/") ? address : `${address}/`);
    const answer = await fetch(url, { credentials: "omit", referrerPolicy: "no-referrer", redirect: "error" });
    insist(answer.ok, `${url} was answered with ${answer.status}: is this the address of 'privfed serve'?`);
    return bounded(answer, LONGEST);
  };
}

/** A published model; `dossier` is where its page for a data protection officer lies, where there is one. */
export class Model {
  private readonly numbers: Map<string, number>;

  constructor(
    readonly version: string, readonly method: string, readonly ids: string[], readonly titles: (string | null)[] | null,
    readonly tensors: Tensors, readonly guarantee: Guarantee, readonly card: Card, readonly dossier?: string,
  ) {
    this.numbers = new Map(ids.map((id, at) => [id, at]));
  }

  /** Download the newest version, or one that is known by its digest; every file is checked against it. */
  static async load(get: Fetch, version?: string): Promise<Model> {
    try {
      return await Model.checked(get, version);
    } catch (why) {
      throw refusal(why, "the model");
    }
  }

  private static async checked(get: Fetch, version?: string): Promise<Model> {
    insistOnLittleEndian();
    let dossier: string | undefined;
    if (version === undefined) {
      const latest = object(await get("latest.json"), "latest.json") as { format?: unknown; version?: unknown; dossier?: unknown };
      insist(latest.format === FORMAT, `latest.json is of format ${shown(latest.format)}, and this device reads ${FORMAT}`);
      version = String(latest.version);
      if (Object.hasOwn(latest, "dossier")) {
        const named = typeof latest.dossier === "string" && /^[0-9a-f]{64}$/.test(latest.dossier);
        insist(named, `latest.json names the dossier ${shown(latest.dossier)}: it is a SHA-256 in hexadecimal digits`);
        dossier = `dossiers/${latest.dossier}/index.html`;
      }
    }
    insist(/^[0-9a-f]{64}$/.test(version), `${version.slice(0, 80)} is no version: it is a SHA-256 in hexadecimal digits`);
    const part = async (name: string, digest: string): Promise<Bytes> => {
      const bytes = await get(`models/${version}/${name}`);
      insist((await sha256(bytes)) === digest, `${name} is not what version ${version} names: do not use this server`);
      return bytes;
    };
    const manifest = object(await part("manifest.json", version), "manifest.json") as Manifest;
    insist(manifest.format === FORMAT, `the model is of format ${shown(manifest.format)}, and this device reads ${FORMAT}`);
    insist(METHODS.includes(manifest.method), `the model is of ${shown(manifest.method)}: this device computes ${METHODS}`);
    const [arrays, named] = [members(manifest.arrays, "the arrays"), members(manifest.files, "the files")];
    const json = async (name: string): Promise<unknown> => object(await part(name, String(named.get(name))), name);
    const items = (await json("items.json")) as { ids: string[]; titles: (string | null)[] | null };
    const text = (one: unknown): boolean => typeof one === "string";
    insist(whole(manifest.items, MOST_ITEMS), `a catalogue of ${shown(manifest.items)} items was published: do not use it`);
    insist(Array.isArray(items.ids) && items.ids.every(text), "items.json holds ids that are no texts");
    insist(items.ids.length === manifest.items, `items.json names ${items.ids.length} of ${manifest.items} items`);
    insist(new Set(items.ids).size === items.ids.length, "items.json names two items alike");
    const { titles } = items;
    const titled = Array.isArray(titles) && titles.length === manifest.items && titles.every((one) => one === null || text(one));
    insist(titles === null || titled, "items.json holds titles that are no texts, or too few");
    const array = async <K extends keyof typeof KINDS>(
      name: string, dtype: K, shape: number[],
    ): Promise<InstanceType<(typeof KINDS)[K]>> => {
      const listed = arrays.get(name) as Listed | undefined;
      const alike = Array.isArray(listed?.shape) && listed.shape.length === shape.length;
      insist(
        alike && listed.dtype === dtype && shape.every((size, at) => listed.shape[at] === size),
        `the array ${name} is ${shown(listed?.dtype)} [${shown(String(listed?.shape))}], and ${dtype} [${shape}] was expected`,
      );
      const bytes = await part(`${name}.bin`, listed.sha256);
      insist(bytes.length === 4 * shape.reduce((a, b) => a * b, 1), `the array ${name} has ${bytes.length} bytes`);
      const read = new KINDS[dtype](bytes.buffer) as InstanceType<(typeof KINDS)[K]>;
      insist(read.every(Number.isFinite), `the array ${name} holds numbers that are not finite: do not use this server`);
      return read;
    };
    const sizeOf = (name: string): number => {
      const size: unknown = (arrays.get(name) as Listed | undefined)?.shape?.[0];
      insist(whole(size, manifest.items), `the array ${name} is of ${shown(size)} items: do not use this server`);
      return size;
    };
    const gram = async (side: number, beyond: number): Promise<Tensors> => ({
      head: await array("head", "int32", [side]),
      shares: await array("shares", "float32", [side]),
      scale: await array("scale", "float32", [side]),
      weights: await array("weights", "float32", [side, side]),
      order: await array("order", "float32", [manifest.items]),
      beyond: await array("beyond", "int32", [beyond]),
      beyondShares: await array("beyond_shares", "float32", [beyond]),
      beyondWeights: await array("beyond_weights", "float32", [beyond, side]),
    });
    const tensors = manifest.method === POPULARITY
      ? popular(await array("counts", "float32", [manifest.items, 1])) : await gram(sizeOf("head"), sizeOf("beyond"));
    insistOnHead(tensors, tensors.head.length);
    insist(
      [tensors.head, tensors.beyond].every((list) => list.every((item) => item >= 0 && item < manifest.items)),
      "the head names an item that is not in the catalogue: do not use this server",
    );
    const [guarantee, card] = [await json("guarantee.json"), await json("card.json")] as [Guarantee, Card];
    const lists = [guarantee.statements, guarantee.assumptions, card.not_for];
    insist(lists.every((list) => Array.isArray(list) && list.every(text)), "the guarantee or the card is not of sentences");
    return new Model(version, manifest.method, items.ids, items.titles, tensors, guarantee, card, dossier);
  }

  /** The best `k` items for a history of item ids, which goes nowhere. */
  recommend(history: readonly string[], k = 10): Recommended[] {
    insist(Number.isInteger(k) && k >= 1, `k = ${k} asks for no items: give a whole number of at least 1`);
    const own = this.items(history);
    const all = scores(own, this.tensors);
    insist(all.every(Number.isFinite), "the model gives scores that are not finite: do not use this version");
    return ranked(own, all, k).map((item) => ({
      item: this.ids[item], title: this.titles?.[item] ?? null, score: all[item],
    }));
  }

  /** Item numbers of a history of item ids. */
  items(history: readonly string[]): Set<number> {
    return new Set(history.map((id) => {
      const found = this.numbers.get(id);
      insist(found !== undefined, `the catalogue has no item ${id}: it names ${this.ids.length} others`);
      return found;
    }));
  }
}

const whole = (size: unknown, most: number): size is number =>
  typeof size === "number" && Number.isInteger(size) && size >= 0 && size <= most;

/** What an object holds by name, and nothing that every object has. */
function members(given: unknown, what: string): Map<string, unknown> {
  insist(typeof given === "object" && given !== null, `${what} of the model are not listed: do not use this server`);
  return new Map(Object.entries(given));
}

function object(bytes: Bytes, name: string): object {
  try {
    const found: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (typeof found === "object" && found !== null) return found;
  } catch {
    // Answered below, in the same words as any other content that is no object.
  }
  insist(false, `${name} is no JSON object: is this the address of 'privfed serve'?`);
}
