/**
 * A person's device in a federation over HTTP: it asks for what waits for it, and answers what its owner's policy allows.
 *
 *     announce   {"run", "terms"}: held against the policy and what is left of its budget; nothing is charged yet
 *     query      {"run", "query", "masking"} and, for the Gram matrix, "head", "shares" and "scale" in hexadecimal
 *                digits: which sum comes next. Everybody gets the same bytes. The SHA-256 of the announcement's SHA-256
 *                and these bytes is the layout in the terms of the masked sum, so nobody's masks cancel with those of
 *                people who were told something else: who is promised noise of others is in a sum of those who add it
 *     masking    one message of the masked sum; before the upload is made, the ledger is charged
 *
 * Requests and replies are signed under the federation file (`federation`). The replies to the first two are the SHA-256
 * of what was agreed to, of the second the layout. What is refused is not answered, so to others the device dropped out; its owner reads why.
 */

import { bounded, Bytes, concat, fromHex, hex, insist, object, refusal, Refused, sha256, shown } from "./bytes.js";
import { freshBytes } from "./crypto.js";
import { Federation } from "./federation.js";
import { Head, insistOnHead } from "./history.js";
import { Identity } from "./identity.js";
import { Ledger } from "./ledger.js";
import { MaskingClient, MaskingRules } from "./masking.js";
import { parseTerms, QueryTerms, sideOf, Terms } from "./terms.js";
import { encoded } from "./upload.js";

const MAGIC = "50464854";
const [VERSION, HEADER, STAGE, RUN, LEAST_THRESHOLD] = [1, 78, 64, 16, 2];
const LONGEST = 1 << 26;
const [SOON, LATER] = [100, 2000];

type Query = { run: string; query: number; masking: string; head?: string; shares?: string; scale?: string };
type Run = { id: string; terms: Terms; announced: Bytes; session: string; asked: Set<number>; begun: boolean };

/** One person in one run after another. */
export class Participant {
  private run?: Run;
  private client?: MaskingClient;
  private counter = -1n;
  private busy = false;

  private constructor(
    readonly seat: number, private readonly ledger: Ledger, private readonly identity: Identity,
    private readonly federation: Federation, private readonly history: () => ReadonlySet<number>,
  ) {}

  /** The device of that ledger in a federation that lists its key. */
  static async join(ledger: Ledger, federation: Federation, history: () => ReadonlySet<number>): Promise<Participant> {
    const identity = await ledger.identity();
    const seat = federation.seatOf(identity.publicKey);
    await ledger.pin(federation.name, federation.version);
    return new Participant(seat, ledger, identity, federation, history);
  }

  /** Answer one request, or refuse it. */
  async handle(stage: string, request: Bytes): Promise<Bytes> {
    insist(!this.busy, "a request came while another one was answered");
    this.busy = true;
    try {
      const { counter, content, message } = await this.federation.open(request, this.seat, stage, this.counter);
      this.counter = counter;
      const answer = await this.answer(stage, content);
      return await this.federation.reply(this.identity, this.seat, message, answer);
    } catch (why) {
      throw refusal(why, "the request");
    } finally {
      this.busy = false;
    }
  }

  private async answer(stage: string, content: Bytes): Promise<Bytes> {
    if (stage === "announce") return this.announce(content);
    if (stage === "query") return this.query(content);
    insist(stage === "masking" && this.client !== undefined, `a ${shown(stage)} came and no sum was announced`);
    return this.client.answer(content);
  }

  private async announce(request: Bytes): Promise<Bytes> {
    const { run, terms } = object(request, "the announcement", ["run", "terms"]) as { run: string; terms: unknown };
    const parsed = parseTerms(terms);
    insist(parsed.rounds === 1, "a run of several rounds was announced: this device takes part in runs of one");
    for (const { name, coordinates } of parsed.queries) {
      insist(name === "gram" || coordinates === this.federation.items, `popularity is of ${coordinates} items, the catalogue not`);
    }
    await this.ledger.admit(run, parsed);
    const announced = fromHex(await sha256(request));
    this.run = { id: run, terms: parsed, announced, session: hex(freshBytes(RUN)), asked: new Set(), begun: false };
    this.client = undefined;
    return announced;
  }

  private async query(request: Bytes): Promise<Bytes> {
    const asked = object(request, "the query", ["run", "query", "masking"], ["head", "shares", "scale"]) as Query;
    const { run, federation } = this;
    const number: unknown = asked.query;
    insist(run !== undefined && asked.run === run.id, "a sum was asked for of a run that this device did not join");
    const known = typeof number === "number" && Number.isInteger(number) && number >= 0 && number < run.terms.queries.length;
    insist(known && !run.asked.has(number), `query ${shown(number)} is unknown, or was answered`);
    const terms = run.terms.queries[number];
    const masking = fromHex(asked.masking);
    insist(masking.length === RUN, `a masked sum is named by ${RUN} bytes, and ${masking.length} were given`);
    const head = terms.name === "gram" ? headOf(asked, terms) : undefined;
    run.asked.add(number);
    const layout = fromHex(await sha256(concat(run.announced, request)));
    const session = {
      client: this.seat, run: masking, lastRound: -1, length: terms.coordinates, bits: run.terms.bits, layout,
      directory: federation.directory,
    };
    const vector = async () => {
      await this.ledger.spend(run.id, run.terms, number, run.session, run.begun);
      run.begun = true;
      return encoded(this.history(), run.terms, terms, head);
    };
    this.client = new MaskingClient(session, this.rulesUnder(run.terms), this.identity, vector, layout);
    return layout;
  }

  /** What the operator signed, and what the noise needs: a sum of fewer people would hold less than was announced. */
  private rulesUnder({ min_honest, colluding }: Terms): MaskingRules {
    const { minClients, corrupt } = this.federation;
    return {
      minClients: Math.max(minClients, min_honest + colluding), minThreshold: LEAST_THRESHOLD,
      maxCorrupt: Math.max(corrupt, colluding),
    };
  }
}

function headOf({ head, shares, scale }: Query, terms: QueryTerms): Head {
  insist(head !== undefined && shares !== undefined && scale !== undefined, "a Gram matrix was asked for without its head");
  const words = (digits: string): ArrayBuffer => {
    const bytes = fromHex(digits);
    insist(bytes.length % 4 === 0, "the head is not of whole numbers of 4 bytes");
    return bytes.buffer;
  };
  const found = { head: new Int32Array(words(head)), shares: new Float32Array(words(shares)), scale: new Float32Array(words(scale)) };
  insistOnHead(found, sideOf(terms));
  return found;
}

/** Ask for requests and reply to them until `signal` ends it; `refused` hears of every request that is not answered. */
export async function participate(
  address: string, token: string, participant: Participant, signal: AbortSignal, refused: (why: Error) => void = () => {},
  answered: () => void = () => {},
): Promise<void> {
  const place = new URL(`v1/${participant.seat}`, address.endsWith("/") ? address : `${address}/`);
  const call = {
    headers: { Authorization: `Bearer ${token}` }, credentials: "omit", cache: "no-store", redirect: "error",
    referrerPolicy: "no-referrer", signal,
  } as const;
  let last = "";
  let reply: Bytes | undefined;
  while (!signal.aborted) {
    try {
      const answer = await fetch(place, call);
      insist(answer.status !== 401, "the server does not know this device's token: ask its operator");
      if (answer.status !== 200) {
        if (answer.status !== 204) await pause(signal);
        continue;
      }
      const frame = await bounded(answer, LONGEST);
      insist(frame.length >= HEADER && hex(frame.slice(0, 4)) === MAGIC, "the server speaks another protocol: update this page");
      const version = new DataView(frame.buffer).getUint16(4);
      insist(version === VERSION, `the server speaks version ${version}, and this device ${VERSION}: update the older one`);
      const exchange = hex(frame.slice(6, 14));
      if (exchange !== last) {
        [last, reply] = [exchange, undefined];
        const stage = new TextDecoder().decode(frame.slice(HEADER - STAGE, HEADER)).trimEnd();
        reply = await participant.handle(stage, frame.slice(HEADER));
      }
      if (reply === undefined) await pause(signal);
      else {
        await fetch(`${place}/${BigInt(`0x${exchange}`)}`, { ...call, method: "POST", body: reply });
        answered();
      }
    } catch (why) {
      if (signal.aborted) return;
      const reached = why instanceof Refused;
      refused(reached ? why : new Refused("the server cannot be reached, or is not to be read by this page: it is asked again"));
      await pause(signal, reached ? SOON : LATER);
    }
  }
}

const pause = (signal: AbortSignal, milliseconds = SOON): Promise<void> => new Promise((resolve) => {
  const end = (): void => {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
    resolve();
  };
  const timer = setTimeout(end, milliseconds);
  signal.addEventListener("abort", end);
});
