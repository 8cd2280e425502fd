/** Bytes, their hexadecimal form, and what the rest of the module refuses with. */
/** What was given cannot be used; the message says what was given and what was expected. */
export class Refused extends Error {
    name = "Refused";
}
/** Refuse unless `held`. */
export function insist(held, sentence) {
    if (!held)
        throw new Refused(sentence);
}
/** The sentence of a refusal, also of what nobody foresaw: a message that makes this code fail is refused by name. */
export function refusal(why, what) {
    return why instanceof Refused ? why : new Refused(`${what} cannot be used (${why?.name}): do not use this server`);
}
/** The beginning of whatever somebody else gave, for a sentence. */
export function shown(given) {
    const text = typeof given === "string" ? given : typeof given === "object" ? "an object" : String(given);
    return text.slice(0, 40);
}
/** A JSON object with these fields and no others, some of which may be missing. */
export function object(bytes, what, required, optional = []) {
    let found;
    try {
        found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    }
    catch {
        found = undefined;
    }
    insist(typeof found === "object" && found !== null && !Array.isArray(found), `${what} is no JSON object: do not use this server`);
    if (required === undefined)
        return found;
    const names = Object.keys(found);
    const odd = names.find((name) => !required.includes(name) && !optional.includes(name));
    insist(odd === undefined, `${what} has a field ${shown(odd)}, which this device does not know: update it`);
    const missing = required.find((name) => !names.includes(name));
    insist(missing === undefined, `${what} has no field ${missing}: ask the server's operator`);
    return found;
}
/** The content of an answer, unless it is longer than `most` bytes. */
export async function bounded(answer, most) {
    const parts = [];
    const reader = answer.body?.getReader();
    for (let size = 0; reader !== undefined;) {
        const { done, value } = await reader.read();
        if (done)
            break;
        parts.push(value);
        size += value.length;
        if (size <= most)
            continue;
        await reader.cancel();
        throw new Refused(`the server sent more than ${most} bytes: ask its operator`);
    }
    return concat(...parts);
}
const LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
/** Typed arrays are read as they lie in memory, and every format here is little-endian. */
export function insistOnLittleEndian() {
    insist(LITTLE, "this device keeps numbers in big-endian order, which is not supported: use another one");
}
export function concat(...parts) {
    const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
        out.set(part, at);
        at += part.length;
    }
    return out;
}
/** The parts, each preceded by its length in 4 bytes, so that no two lists have the same encoding. */
export function lengthPrefixed(...parts) {
    return concat(...parts.flatMap((part) => [bigEndian(part.length, 4), part]));
}
export function bigEndian(value, size) {
    const out = new Uint8Array(size);
    for (let at = size - 1, left = value; at >= 0; at--, left = Math.floor(left / 256))
        out[at] = left % 256;
    return out;
}
export const ascii = (text) => new TextEncoder().encode(text);
export const hex = (bytes) => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
export function fromHex(digits) {
    const right = typeof digits === "string" && /^([0-9a-f]{2})*$/.test(digits);
    insist(right, `${shown(digits)} are no hexadecimal digits: give an even number of them`);
    return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
export async function sha256(bytes) {
    return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}
