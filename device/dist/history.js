/**
 * What one history contributes, and how it is scored: `private-gram` on one device, and `popularity`, which is its case of
 * no head.
 *
 * With x the 0/1 row of own items on the head, |x| of them, pi the head's shares and s its scale (all float32):
 *
 *     y = s (x - min(1, |x| pi))
 *
 * Every step on vectors is rounded to float32, as in Python. Sums run in float64 in the order of the head.
 */
import { insist } from "./bytes.js";
import { squared } from "./noise.js";
const WITHIN = 1 - 2 ** -22;
const MOST_LIFTED = 1.5;
const ROOT = Math.sqrt(2);
const f32 = Math.fround;
/** The vector y of a history, and how many of its items are on the head. */
export function centred(history, { head, shares, scale }) {
    const owned = head.reduce((count, item) => count + (history.has(item) ? 1 : 0), 0);
    const vector = Float32Array.from(head, (item, at) => {
        const expected = Math.min(f32(owned * shares[at]), 1);
        return f32(f32((history.has(item) ? 1 : 0) - expected) * scale[at]);
    });
    return [vector, owned];
}
/** A factor of at most 1 that brings a norm to its bound or below, in float32 arithmetic too. */
export function shrinkFactor(norm, bound) {
    if (norm <= bound)
        return 1;
    const factor = ((bound * WITHIN) / norm) * WITHIN;
    return factor < 2 ** -126 ? 0 : factor;
}
/**
 * The vector along the own items, of `items` numbers and of length 1 unless the `value` of each is given, clipped so that
 * `weight` times it is within `bound`. An item beyond these has no place in it: to refuse would tell a server that shortens
 * the catalogue who has such an item.
 */
export function unitHistory(history, items, weight, bound, value = f32(WITHIN / Math.sqrt(history.size))) {
    const out = new Float32Array(items);
    for (const item of history)
        if (item < items)
            out[item] = value;
    const factor = shrinkFactor(weight * Math.sqrt(squared(out)), bound);
    return factor === 1 ? out : out.map((one) => f32(one * factor));
}
/** The packed outer product of y with itself, of norm 1, clipped so that `weight` times it is within `bound`. */
export function gramHistory(history, head, diagonal, weight, bound) {
    const own = normed(centred(history, head)[0], diagonal);
    return packed(own.vector, diagonal, own.factor * shrinkFactor(weight * Math.sqrt(own.square), bound));
}
/**
 * The same beside the unit vector along the own items on the head, of weight `beside`: one vector, clipped as one, so
 * that both together are within `bound`.
 */
export function gramAndHead(history, head, diagonal, weight, beside, bound) {
    const owned = head.head.reduce((count, item) => count + (history.has(item) ? 1 : 0), 0);
    const value = f32(WITHIN / Math.sqrt(owned));
    const popularity = Float32Array.from(head.head, (item) => (history.has(item) ? value : 0));
    const own = normed(centred(history, head)[0], diagonal);
    const norm = Math.sqrt(own.square * (weight * weight) + squared(popularity) * (beside * beside));
    const factor = shrinkFactor(norm, bound);
    const gram = packed(own.vector, diagonal, own.factor * factor);
    const out = new Float32Array(gram.length + popularity.length);
    out.set(gram);
    out.set(popularity.map((one) => f32(one * f32(factor))), gram.length);
    return out;
}
/** A vector, what its packed outer product is multiplied by for a norm of 1 or less, and the square of that norm. */
function normed(vector, diagonal) {
    const squares = Float64Array.from(vector, (one) => one * one);
    let whole = 0;
    for (const one of squares)
        whole += one;
    const left = Math.sqrt(Math.max(whole * whole - squared(squares), 0));
    const factor = diagonal ? WITHIN / whole : Math.min(WITHIN / left, MOST_LIFTED / whole);
    return whole > 0 ? { vector, factor, square: (factor * (diagonal ? whole : left)) ** 2 } : { vector, factor: 0, square: 0 };
}
/** The upper triangle of the outer product of a vector with itself, times a factor. */
function packed(vector, diagonal, factor) {
    const side = vector.length;
    const out = new Float32Array(diagonal ? (side * (side + 1)) / 2 : (side * (side - 1)) / 2);
    for (let row = 0, at = 0; row < side; row++) {
        let scaled = factor * vector[row];
        if (diagonal)
            out[at++] = scaled * vector[row];
        scaled *= ROOT;
        for (let column = row + 1; column < side; column++)
            out[at++] = scaled * vector[column];
    }
    return out;
}
/** Refuse a head that a device cannot compute with, whatever its history is. */
export function insistOnHead({ head, shares, scale }, side) {
    insist([head, shares, scale].every((one) => one.length === side), `the head is not of one size: ${side} items were announced`);
    insist(new Set(head).size === side && head.every((item) => item >= 0), "the head names an item twice, or one that is none");
    const sound = (one) => one >= 0 && one < Infinity;
    insist(shares.every(sound) && scale.every(sound), "the head holds numbers that are not finite and positive");
}
/** The model of `popularity`: no head, and all items in the order of their counts, as a share of the largest. */
export function popular(counts) {
    const most = counts.reduce((largest, one) => Math.max(largest, one), 1);
    const none = { head: new Int32Array(), beyond: new Int32Array() };
    const [shares, scale, weights, beyondShares, beyondWeights] = Array.from({ length: 5 }, () => new Float32Array());
    return { ...none, shares, scale, weights, beyondShares, beyondWeights, order: counts.map((one) => f32(one / most)) };
}
/** Scores of the whole catalogue for one history, float32. */
export function scores(history, tensors) {
    const { head, shares, scale, weights, order, beyond, beyondShares, beyondWeights } = tensors;
    const [vector, owned] = centred(history, tensors);
    if (!owned)
        return order.slice();
    const product = (matrix, row) => {
        let sum = 0;
        for (let at = row * head.length, j = 0; j < head.length; at++, j++)
            sum += matrix[at] * vector[j];
        return f32(sum);
    };
    const best = shares.map((share, row) => f32(f32(owned * share) + f32(product(weights, row) / scale[row])));
    const under = f32(best.reduce((least, one) => Math.min(least, one), Infinity) - 2);
    const out = order.map((place) => f32(under + place));
    head.forEach((item, row) => (out[item] = best[row]));
    beyond.forEach((item, row) => (out[item] = f32(f32(owned * beyondShares[row]) + product(beyondWeights, row))));
    return out;
}
/** Item numbers of the best `k` that are not in the history, best first; equal scores in the order of items. */
export function ranked(history, all, k) {
    const left = [...all.keys()].filter((item) => !history.has(item));
    return left.sort((a, b) => all[b] - all[a] || a - b).slice(0, k);
}
