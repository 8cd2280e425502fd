/**
 * A person's device in a federation over HTTP: it asks for what waits for it, and answers what its owner's policy allows.
 *
 *     announce   {"run", "terms"}: checked against the policy and charged to the ledger, before anything else
 *     query      {"run", "query", "masking"} and, for the Gram matrix, "head", "shares" and "scale" in hexadecimal
 *                digits: which sum comes next. Everybody gets the same bytes: their SHA-256 is the layout in the terms
 *                of the masked sum, so nobody's masks cancel with those of people who were told something else
 *     masking    one message of the masked sum
 *
 * The replies to the first two are the SHA-256 of what was agreed to. What is refused is not answered, so to others the
 * device dropped out; its owner reads why. Every query of a run is answered once.
 */

import { Bytes, concat, fromHex, hex, insist, sha256 } from "./bytes.js";
import { Head } from "./history.js";
import { Ledger } from "./ledger.js";
import { Identity, MaskingClient, MaskingRules } from "./masking.js";
import { parseTerms, Terms } from "./terms.js";
import { encoded } from "./upload.js";

const MAGIC = "50464854";
const [VERSION, HEADER, STAGE] = [1, 78, 64];
const FEWEST = 3;

type Query = { run: string; query: number; masking: string; head?: string; shares?: string; scale?: string };

/** One person in one run after another. */
export class Participant {
  private run?: { id: string; terms: Terms; answered: Set<number> };
  private client?: MaskingClient;

  constructor(
    private readonly number: number, private readonly ledger: Ledger, private readonly identity: Identity,
    private readonly rules: MaskingRules, private readonly directory: Map<number, Bytes>,
    private readonly history: () => ReadonlySet<number>,
  ) {}

  /** Answer one request, or refuse it. */
  async handle(stage: string, request: Bytes): Promise<Bytes> {
    if (stage === "announce") return this.announce(request);
    if (stage === "query") return this.query(request);
    insist(stage === "masking" && this.client !== undefined, `a ${stage} came and no sum was announced`);
    return this.client.answer(request);
  }

  private async announce(request: Bytes): Promise<Bytes> {
    const { run, terms } = json(request) as { run: string; terms: unknown };
    const parsed = parseTerms(terms);
    insist(parsed.rounds === 1, "a run of several rounds was announced: this device takes part in runs of one");
    await this.ledger.charge(run, parsed);
    this.run = { id: run, terms: parsed, answered: new Set() };
    this.client = undefined;
    return fromHex(await sha256(request));
  }

  private async query(request: Bytes): Promise<Bytes> {
    const asked = json(request) as Query;
    const run = this.run;
    insist(run !== undefined && asked.run === run.id, "a sum was asked for of a run that this device did not join");
    const terms = run.terms.queries[asked.query];
    insist(terms !== undefined && !run.answered.has(asked.query), `query ${asked.query} is unknown, or was answered`);
    run.answered.add(asked.query);
    const head = terms.name === "gram" ? headOf(asked) : undefined;
    const layout = fromHex(await sha256(request));
    const session = {
      client: this.number, run: fromHex(asked.masking), lastRound: -1, length: terms.coordinates, bits: run.terms.bits, layout,
      directory: this.directory,
    };
    const vector = () => encoded(this.history(), run.terms, terms, head);
    this.client = new MaskingClient(session, this.rulesUnder(run.terms), this.identity, vector, layout);
    return layout;
  }

  /** The owner's rules, and what the noise needs: a sum of fewer people would hold less than was announced. */
  private rulesUnder({ min_honest, colluding }: Terms): MaskingRules {
    const { minClients, minThreshold, maxCorrupt } = this.rules;
    return {
      minClients: Math.max(minClients, min_honest + colluding, FEWEST), minThreshold,
      maxCorrupt: Math.max(maxCorrupt, colluding),
    };
  }
}

function headOf({ head, shares, scale }: Query): Head {
  insist(head !== undefined && shares !== undefined && scale !== undefined, "a Gram matrix was asked for without its head");
  const found = {
    head: new Int32Array(fromHex(head).buffer), shares: new Float32Array(fromHex(shares).buffer),
    scale: new Float32Array(fromHex(scale).buffer),
  };
  insist(found.shares.length === found.head.length && found.scale.length === found.head.length, "the head is not of one size");
  const sound = (one: number): boolean => one >= 0 && one < Infinity;
  insist(found.shares.every(sound) && found.scale.every(sound), "the head holds numbers that are not finite and positive");
  return found;
}

/** Ask for requests and reply to them until `signal` ends it; `refused` hears of every request that is not answered. */
export async function participate(
  address: string, node: number, token: string, participant: Participant, signal: AbortSignal,
  refused: (why: Error) => void = () => {},
): Promise<void> {
  const place = new URL(`v1/${node}`, address.endsWith("/") ? address : `${address}/`);
  const call = { headers: { Authorization: `Bearer ${token}` }, credentials: "omit", cache: "no-store", signal } as const;
  let last = "";
  let reply: Bytes | undefined;
  while (!signal.aborted) {
    try {
      const answer = await fetch(place, call);
      insist(answer.status !== 401, "the server does not know this device's token: ask its operator");
      if (answer.status !== 200) continue;
      const frame = new Uint8Array(await answer.arrayBuffer());
      const version = new DataView(frame.buffer).getUint16(4);
      insist(hex(frame.slice(0, 4)) === MAGIC && version === VERSION, "the server speaks another protocol: update this page");
      const exchange = hex(frame.slice(6, 14));
      if (exchange !== last) {
        [last, reply] = [exchange, undefined];
        const stage = new TextDecoder().decode(frame.slice(HEADER - STAGE, HEADER)).trimEnd();
        reply = await participant.handle(stage, frame.slice(HEADER));
      }
      if (reply === undefined) await pause(signal);
      else await fetch(`${place}/${BigInt(`0x${exchange}`)}`, { ...call, method: "POST", body: concat(reply) });
    } catch (why) {
      if (signal.aborted) return;
      refused(why as Error);
      await pause(signal);
    }
  }
}

const pause = (signal: AbortSignal): Promise<void> => new Promise((resolve) => {
  const timer = setTimeout(resolve, 100);
  signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
});

function json(bytes: Bytes): unknown {
  const found: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  insist(typeof found === "object" && found !== null, "a request is no JSON object");
  return found;
}
