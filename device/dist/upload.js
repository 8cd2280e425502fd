/** One upload: clipped, rounded, noised and written in the ring, all before anything leaves the device. */
import { insist } from "./bytes.js";
import { freshBytes, KEY_BYTES, subkey } from "./crypto.js";
import { gramAndHead, gramHistory, unitHistory } from "./history.js";
import { conditionalRound, fraction, squared, tableOf } from "./noise.js";
import { Ring } from "./ring.js";
import { clipOf, radiusOf, sideOf } from "./terms.js";
const CLIP_SLACK = 1e-6;
const f32 = Math.fround;
/** What a history says to a query, clipped; `head` is what the server sent with it. */
export function contribution(history, terms, query, head) {
    const bound = clipOf(terms, query);
    if (query.name === "popularity")
        return unitHistory(history, query.coordinates, query.weight, bound);
    if (query.name === "count")
        return unitHistory(history, query.coordinates, query.weight, bound, 1);
    insist(head !== undefined, "a query for the Gram matrix came without its head");
    const { diagonal, weight, head_popularity: beside } = query;
    const out = beside === undefined
        ? gramHistory(history, head, diagonal, weight, bound) : gramAndHead(history, head, diagonal, weight, beside, bound);
    insist(out.length === query.coordinates, `the head makes ${out.length} numbers and ${query.coordinates} were announced`);
    return out;
}
/** Whole steps of the grid with this device's share of noise; `key` only for published vectors. */
export async function noisedSteps(values, terms, query, key = freshBytes(KEY_BYTES)) {
    const clip = clipOf(terms, query);
    const first = query.head_popularity === undefined ? values.length : values.length - sideOf(query);
    const [weight, beside] = [f32(query.weight), f32(query.head_popularity ?? 0)];
    let weighted = values.map((value, at) => f32(value * (at < first ? weight : beside)));
    const excess = Math.max(Math.sqrt(squared(weighted)) / clip, 1);
    weighted = weighted.map((value) => f32(value / f32(excess)));
    const norm = Math.sqrt(squared(weighted));
    insist(norm <= clip * (1 + CLIP_SLACK), `a vector of norm ${norm} is beyond its clip of ${clip}: report this`);
    const scale = radiusOf(terms, query) / Math.max(norm, clip);
    const steps = Float64Array.from(weighted, (value) => value * scale);
    const rounded = await conditionalRound(steps, radiusOf(terms, query), await subkey(key, "encoding", 0));
    const table = tableOf(fraction(query.total_variance, terms.min_honest));
    const noise = await table.sample(steps.length, await subkey(key, "noise", 0));
    return rounded.map((value, at) => value + noise[at]);
}
/** The ring elements of one upload, before masks. */
export async function encoded(history, terms, query, head, key) {
    const values = contribution(history, terms, query, head);
    return new Ring(terms.bits).fromIntegers(await noisedSteps(values, terms, query, key));
}
