/**
 * Exact Skellam noise by inversion of a table, and conditional rounding: `secure_agg.noise`, bit for bit.
 *
 * A draw is the cell of the cumulative distribution into which a uniform number falls. Thresholds are known to a unit of
 * 2^-64; where 64 bits do not decide, the number is read on and the thresholds are computed again to match, so nothing
 * is rounded. Everything is integer arithmetic but the tail bound, which only says where the table may end.
 */

import { Bytes, insist } from "./bytes.js";
import { keystream, subkey } from "./crypto.js";

/** A rational number with a positive denominator. */
export type Fraction = { numerator: bigint; denominator: bigint; value: number };

const MAX_DEVIATION = 1 << 14;
const POOL = 1 << 13;
const WORD = 64n;
const LARGEST = (1n << WORD) - 1n;
const GUIDE_BITS = 16n;
const NORM_SLACK = 1e-9;
const ATTEMPTS = 64;
export const BETA = 0.6065306597126334;

/** A finite positive float64, divided by a whole number, exactly. */
export function fraction(value: number, divisor: number): Fraction {
  insist(value > 0 && value < Infinity, `a variance of ${value} was given: it is positive and finite`);
  let exponent = 0;
  let whole = value;
  while (!Number.isInteger(whole)) {
    whole *= 2;
    exponent += 1;
  }
  return { numerator: BigInt(whole), denominator: (1n << BigInt(exponent)) * BigInt(divisor), value: value / divisor };
}

/** Smallest whole t with ln P(|X| >= t) <= logProbability by Chernoff's bound. */
export function tailBound(variance: number, logProbability: number): number {
  const target = (Math.LN2 - logProbability) * (1 + 1e-9);
  const exponent = (t: number): number =>
    t * Math.asinh(t / variance) - (t * t) / (Math.hypot(t, variance) + variance);
  let low = 0;
  let high = Math.ceil(target / 3 + Math.sqrt((target * target) / 9 + 2 * variance * target)) + 1;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (exponent(middle) >= target) high = middle;
    else low = middle;
  }
  return high;
}

/** Whole numbers T with T - 1 < 2^precision P(X < k) < T + 2, for k = -last, ..., last + 1. */
export function cumulative(variance: Fraction, precision: number): bigint[] {
  const last = tailBound(variance.value, -(precision + 40) * Math.LN2);
  const half = skellamWeights(variance, last, precision + 100);
  const total = 2n * half.reduce((sum, one) => sum + one, 0n) - half[0];
  const out = [0n];
  let below = 0n;
  for (let k = -last; k <= last; k++) {
    below += half[Math.abs(k)];
    out.push((below << BigInt(precision)) / total);
  }
  return out;
}

/** Proportional to P(X = 0), ..., P(X = last): Miller's downward recurrence. */
function skellamWeights(variance: Fraction, last: number, bits: number): bigint[] {
  let next = 0n;
  let weight = 1n << BigInt(bits);
  const weights = [weight];
  for (let k = last; k > 0; k--) {
    [next, weight] = [weight, next + (2n * BigInt(k) * weight * variance.denominator) / variance.numerator];
    weights.push(weight);
  }
  return weights.reverse();
}

/** Refuse noise for which a table would be too long. */
export function insistOnTable(variance: Fraction): void {
  insist(
    Math.sqrt(variance.value) <= MAX_DEVIATION,
    `noise of a standard deviation of ${Math.sqrt(variance.value)} steps was announced: the grid is too fine`,
  );
}

/** The cumulative distribution of Skellam noise of one variance, tabulated. */
export class SkellamTable {
  private readonly edges: BigUint64Array;
  private readonly guide: Uint32Array;

  constructor(private readonly variance: Fraction) {
    insistOnTable(variance);
    const thresholds = cumulative(variance, Number(WORD));
    thresholds[thresholds.length - 1] = LARGEST;
    this.edges = BigUint64Array.from(thresholds);
    this.guide = new Uint32Array((1 << Number(GUIDE_BITS)) + 1);
    for (const edge of this.edges) this.guide[Number(edge >> (WORD - GUIDE_BITS)) + 1] += 1;
    for (let at = 1; at < this.guide.length; at++) this.guide[at] += this.guide[at - 1];
  }

  /** Independent draws under a key of 32 bytes, which is used for nothing else. */
  async sample(count: number, key: Bytes): Promise<Float64Array> {
    const words = new BigUint64Array((await keystream(key, 8 * count)).buffer);
    const out = new Float64Array(count);
    const lowest = -this.edges.length / 2;
    for (let at = 0; at < count; at++) {
      const found = this.lookUp(words[at]);
      out[at] = found === undefined ? await this.decide(words[at], key, at) : found + lowest;
    }
    return out;
  }

  /** Number of thresholds surely below a word; undefined where one is within a unit of it. */
  lookUp(word: bigint): number | undefined {
    const under = (word > 1n ? word : 1n) - 1n;
    const over = (word < LARGEST ? word : LARGEST - 1n) + 1n;
    const place = Number(under >> (WORD - GUIDE_BITS));
    let low = this.guide[place];
    let high = this.guide[place + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.edges[middle] < under) low = middle + 1;
      else high = middle;
    }
    return low < this.edges.length && this.edges[low] <= over ? undefined : low;
  }

  /** The value at the number that begins with `word`, read to as many further bits as it takes. */
  async decide(word: bigint, key: Bytes, draw: number): Promise<number> {
    const coins = await keystream(await subkey(await subkey(key, "further bits", draw), "coins", 0), POOL);
    let used = 0;
    for (let precision = Number(WORD), number = word; ; ) {
      insist(used + precision / 8 <= POOL, "a draw of noise was not decided by 65,536 bits: report this");
      let further = 0n;
      for (let at = precision / 8 - 1; at >= 0; at--) further = (further << 8n) | BigInt(coins[used + at]);
      used += precision / 8;
      number = (number << BigInt(precision)) | further;
      precision *= 2;
      const thresholds = cumulative(this.variance, precision);
      const surely = thresholds.filter((one) => one < number - 1n).length;
      if (surely === thresholds.filter((one) => one <= number + 1n).length) return surely - thresholds.length / 2;
    }
  }
}

let latest: { key: string; table: SkellamTable } | undefined;

/** The table of a variance; the latest one is kept, since building it takes longer than a draw. */
export function tableOf(variance: Fraction): SkellamTable {
  const key = `${variance.numerator}/${variance.denominator}`;
  if (latest?.key !== key) latest = { key, table: new SkellamTable(variance) };
  return latest.table;
}

/** The L2 norm, in steps, that no rounded vector exceeds. */
export function roundedNormBound(radius: number, coordinates: number): number {
  const root = Math.sqrt(coordinates);
  insist(radius > 0 && radius + root < 2 ** 26, `a clip of ${radius} steps was announced: take another grid`);
  const deviation = Math.sqrt(2 * Math.log(1 / BETA)) * (radius + root / 2);
  return Math.min(radius + root, Math.sqrt(radius * radius + coordinates / 4 + deviation));
}

/** Round at random to whole steps, and again where the result is longer than the bound. */
export async function conditionalRound(steps: Float64Array, radius: number, key: Bytes): Promise<Float64Array> {
  const bound = roundedNormBound(radius, steps.length);
  const most = bound * bound * (1 - 2 ** -50);
  insist(Math.sqrt(squared(steps)) <= radius * (1 + NORM_SLACK), "a vector is longer than the clip: clip it first");
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const words = new Uint32Array((await keystream(await subkey(key, "rounding", attempt), 4 * steps.length)).buffer);
    const rounded = steps.map((value, at) => {
      const lower = Math.floor(value);
      return lower + (words[at] < (value - lower) * 2 ** 32 ? 1 : 0);
    });
    if (squared(rounded) <= most) return rounded;
  }
  return steps.map(Math.trunc);
}

/** Sum of squares, in the order of the coordinates. */
export function squared(values: Float64Array | Float32Array): number {
  let sum = 0;
  for (const value of values) sum += value * value;
  return sum;
}
