/**
 * The terms of a federation, and whether this person's own policy allows them.
 *
 * A device believes no announced epsilon. It computes its own from clip, grid and noise, by the Renyi bound of the
 * Skellam mechanism (Agarwal, Kairouz and Liu 2021) at whole orders, which is never below that of `secure_agg`.
 */
import { insist, shown } from "./bytes.js";
import { BETA, fraction, insistOnTable, roundedNormBound, tailBound } from "./noise.js";
const STEPS = { "private-gram": ["popularity", "gram"], popularity: ["count"] };
const ORDERS = [...Array(254).keys()].map((order) => order + 2).concat([300, 400, 600, 1000, 2000, 5000, 10000, 100000]);
const MOST_QUERIES = 16;
const FAILURE = Math.log(2 ** -40);
const LIMITS = {
    beta: [BETA, BETA, false], rounds: [1, 1000, true], clip_norm: [2 ** -30, 2 ** 30, false], delta: [1e-300, 0.5, false],
    min_honest: [1, 2 ** 31, true], colluding: [0, 2 ** 31, true], cohort: [1, 2 ** 31, true], bits: [2, 32, true],
    coordinates: [1, 2 ** 24, true], weight: [2 ** -30, 2 ** 30, false], share: [1e-9, 1, false],
    grid: [1e-300, 1e300, false], head_popularity: [2 ** -30, 2 ** 30, false], total_variance: [1e-6, 2 ** 60, false],
};
/** Terms as they were announced, every number within its range and nothing besides. */
export function parseTerms(given) {
    const terms = fields(given, "the terms", {
        format: [1], method: Object.keys(STEPS), law: ["skellam"],
    }, ["beta", "rounds", "clip_norm", "delta", "min_honest", "colluding", "cohort", "bits"], ["queries"]);
    const asked = Array.isArray(terms.queries) ? terms.queries.length : 0;
    insist(asked > 0 && asked <= MOST_QUERIES, `the terms name no query, or more than ${MOST_QUERIES}: do not take part`);
    for (const query of terms.queries) {
        fields(query, "a query", { name: STEPS[terms.method], diagonal: [true, false] }, [
            "coordinates", "weight", "share", "grid", "total_variance",
        ], [], ["head_popularity"]);
        if (query.name === "gram")
            sideOf(query);
        insist(query.name === "gram" || query.head_popularity === undefined, "popularity is asked for twice in one query");
    }
    const shares = terms.queries.reduce((sum, query) => sum + query.share, 0);
    insist(shares <= 1 + 1e-9, `the shares of the clip norm add up to ${shares}: they may add up to 1`);
    insist(terms.cohort >= terms.min_honest + terms.colluding, `a sum of ${terms.cohort} cannot hold ${terms.min_honest} honest devices and ${terms.colluding} colluding ones`);
    for (const query of terms.queries)
        insistOnRoom(terms, query);
    return terms;
}
/** Items on the head of a query for the Gram matrix: what makes so many numbers. */
export function sideOf({ coordinates, diagonal, head_popularity }) {
    const more = (diagonal ? 1 : -1) + (head_popularity === undefined ? 0 : 2);
    const side = Math.round((Math.sqrt(more * more + 8 * coordinates) - more) / 2);
    insist((side * (side + more)) / 2 === coordinates, `no head makes a query of ${coordinates} numbers: do not take part`);
    return side;
}
/** L2 norm that the weighted values of a query are within. */
export const clipOf = (terms, query) => terms.clip_norm * Math.sqrt(query.share);
/** The clip in steps of the grid. */
export const radiusOf = (terms, query) => clipOf(terms, query) / query.grid;
/** What a whole run costs this person at its delta: Renyi divergences of all sums added up. */
export function epsilonOf(terms) {
    let least = Infinity;
    for (const order of ORDERS) {
        const sum = terms.queries.reduce((total, query) => total + divergence(terms, query, order), 0);
        const epsilon = terms.rounds * sum + Math.log1p(-1 / order) - (Math.log(terms.delta) + Math.log(order)) / (order - 1);
        least = Math.min(least, epsilon);
    }
    return Math.max(least, 0);
}
/** Renyi divergence of one sum at a whole order: what its noise leaves of one person. */
export function divergence(terms, query, order) {
    const variance = query.total_variance;
    const l2 = roundedNormBound(radiusOf(terms, query), query.coordinates);
    const l1 = Math.min(Math.sqrt(query.coordinates) * l2, l2 * l2);
    const square = l2 * l2;
    const correction = Math.min(((2 * order - 1) * square + 6 * l1) / (4 * variance * variance), (3 * l1) / (2 * variance));
    return (order * square) / (2 * variance) + correction;
}
/** Refuse terms that a policy does not allow, whatever is left of its budget. */
export function insistOnPolicy(terms, policy) {
    const epsilon = epsilonOf(terms);
    insist(epsilon <= policy.epsilonPerYear, `the run would cost epsilon ${epsilon.toPrecision(3)}, and your policy allows ${policy.epsilonPerYear} a year`);
    insist(terms.delta <= policy.deltaPerYear, `the run has delta ${terms.delta}, and your policy ${policy.deltaPerYear}`);
    insist(terms.cohort >= policy.leastCohort, `a sum is of ${terms.cohort} people at most, and your policy asks for ${policy.leastCohort}`);
    insist(terms.min_honest >= policy.leastHonest, `the noise is of ${terms.min_honest} honest people, and your policy asks for ${policy.leastHonest}`);
}
function insistOnRoom(terms, query) {
    const radius = radiusOf(terms, query);
    const most = Math.min(Math.ceil(radius * (1 + 1e-9)), Math.floor(roundedNormBound(radius, query.coordinates)));
    const share = fraction(query.total_variance, terms.min_honest);
    insistOnTable(share);
    const variance = terms.cohort * share.value;
    const noise = tailBound(variance, FAILURE - Math.log(query.coordinates));
    insist(terms.cohort * most + noise < 2 ** (terms.bits - 1), `a sum of ${terms.cohort} does not fit ${terms.bits} bits: what is opened would be nonsense`);
}
function fields(given, what, named, numbers, others, optional = []) {
    insist(typeof given === "object" && given !== null && !Array.isArray(given), `${what} are no JSON object`);
    const found = given;
    const known = [...Object.keys(named), ...numbers, ...others, ...optional];
    const odd = Object.keys(found).find((name) => !known.includes(name));
    insist(odd === undefined, `${what} have a field ${shown(odd)}, which this device does not know: update it`);
    for (const [name, values] of Object.entries(named)) {
        insist(values.includes(found[name]), `${what} have ${name} = ${shown(found[name])}: this device knows ${values}`);
    }
    for (const name of [...numbers, ...optional.filter((one) => Object.hasOwn(found, one))]) {
        const [low, high, whole] = LIMITS[name];
        const value = found[name];
        insist(typeof value === "number" && value >= low && value <= high && (!whole || Number.isInteger(value)), `${what} have ${name} = ${shown(value)}: it is ${whole ? "a whole number " : ""}from ${low} to ${high}`);
    }
    return found;
}
