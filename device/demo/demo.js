/** The page: `index.html?server=ADDRESS` reads what `privfed serve` gives at that address, or beside the page itself. */

import {
  ascii, Federation, from, fromHex, hex, IndexedDbStore, insist, insistOnCrypto, Ledger, Model, Participant, participate,
  readInvitation,
} from "../dist/index.js";

const LEAST = { deltaPerYear: 1e-5, leastCohort: 100, leastHonest: 50 };
const at = (id) => document.getElementById(id);
const own = new Set();
const ledger = new Ledger(new IndexedDbStore());
let model;
let leave = new AbortController();

const base = () => {
  const server = new URLSearchParams(location.search).get("server") ?? new URL("./", location.href).href;
  return server.endsWith("/") ? server : `${server}/`;
};
const written = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
const name = (item, title) => (title === null ? item : `${title} (${item})`);
const title = (item) => name(item, model.titles?.[model.ids.indexOf(item)] ?? null);

function draw() {
  at("history").replaceChildren(...[...own].map((item) => {
    const button = written("button", `${title(item)} ×`);
    button.type = "button";
    button.setAttribute("aria-label", `Remove ${title(item)}`);
    button.addEventListener("click", () => (own.delete(item), draw()));
    const line = document.createElement("li");
    line.append(button);
    return line;
  }));
  at("list").replaceChildren(...model.recommend([...own]).map((one) => written("li", name(one.item, one.title))));
}

function drawBudget(kept) {
  at("spent").textContent = kept === undefined
    ? "Nothing is allowed and nothing is kept: you take part in nothing."
    : `Spent epsilon ${kept.epsilon.toPrecision(2)} of ${kept.policy.epsilonPerYear} in the last year, in ${kept.runs} runs.`;
}

function add(text) {
  const item = model.ids.find((id) => id === text || title(id) === text);
  at("wrong").textContent = item === undefined ? `The catalogue has no "${text}".` : "";
  if (item === undefined) return;
  own.add(item);
  at("wanted").value = "";
  draw();
}

function drawModel() {
  const { guarantee, card } = model;
  const made = card.synthetic ? "generated data, so about nobody" : `${card.data}`;
  at("what").textContent = `${card.title}; learned from ${made}; version ${model.version.slice(0, 12)}.`;
  at("guarantee").textContent =
    `Epsilon ${Number(guarantee.epsilon).toPrecision(3)} at delta ${guarantee.delta}, for one ${guarantee.unit}, per ` +
    `${guarantee.per}. Trust: ${guarantee.trust}.`;
  at("dossier").hidden = model.dossier === undefined;
  if (model.dossier !== undefined) at("dossier").href = new URL(model.dossier, base()).href;
  const said = [...guarantee.statements, ...guarantee.assumptions.map((one) => `Assumed: ${one}`), ...card.not_for];
  at("statements").replaceChildren(...said.map((one) => written("li", one)));
  at("titles").replaceChildren(...model.ids.map((id) => Object.assign(document.createElement("option"), { value: title(id) })));
  at("wanted").disabled = false;
}

at("wanted").addEventListener("change", () => add(at("wanted").value.trim()));
at("allow").addEventListener("click", async () => {
  try {
    await ledger.allow({ epsilonPerYear: at("epsilon").valueAsNumber, ...LEAST });
    drawBudget(await ledger.state());
  } catch (refused) {
    at("spent").textContent = refused.message;
  }
});
at("show").addEventListener("click", async () => {
  try {
    await insistOnCrypto();
    at("key").textContent = hex((await ledger.identity()).publicKey);
  } catch (refused) {
    at("key").textContent = refused.message;
  }
});
at("join").addEventListener("click", async () => {
  const say = (text) => (at("joined").textContent = text);
  try {
    await insistOnCrypto();
    const { address, token, federation, signature, items } = readInvitation(at("invitation").value);
    const signed = await Federation.read(ascii(federation), fromHex(signature), fromHex(at("operator").value.trim()));
    insist(items.length === signed.items, `the invitation names ${items.length} items, and the operator ${signed.items}`);
    const numbers = new Map(items.map((id, number) => [id, number]));
    const liked = () => new Set([...own].filter((id) => numbers.has(id)).map((id) => numbers.get(id)));
    const one = await Participant.join(ledger, signed, liked);
    leave.abort();
    leave = new AbortController();
    say(`You take part in ${signed.name} while this tab is open.`);
    await participate(address, token, one, leave.signal, (why) => say(why.message), async () => drawBudget(await ledger.state()));
  } catch (refused) {
    say(refused.message);
  }
});
at("forget").addEventListener("click", async () => {
  leave.abort();
  own.clear();
  for (const id of ["key", "joined"]) at(id).textContent = "";
  await ledger.withdraw();
  draw();
  drawBudget(undefined);
});

try {
  drawBudget(await ledger.state());
  model = await Model.load(from(base()));
  drawModel();
  draw();
  document.documentElement.dataset.ready = "yes";
} catch (refused) {
  at("what").textContent = refused.message;
  document.documentElement.dataset.ready = "no";
}
