/**
 * Devices for tests of a federation: `node join.mjs N` prints N public keys, reads what each is told on a line of its
 * own, and takes part until the input ends.
 */

import { createInterface } from "node:readline";

import * as device from "./dist/index.js";

const ledgers = Array.from({ length: Number(process.argv[2] ?? 1) }, () => new device.Ledger(new device.MemoryStore()));
for (const ledger of ledgers) console.log(device.hex((await ledger.identity()).publicKey));
const end = new AbortController();
const lines = createInterface({ input: process.stdin });
lines.on("close", () => end.abort());
const told = lines[Symbol.asyncIterator]();
const say = (what) => console.log(JSON.stringify(what));

async function join(ledger, { policy, federation, signature, operator, history, address, token }) {
  await ledger.allow(policy);
  const signed = await device.Federation.read(
    device.ascii(federation), device.fromHex(signature), device.fromHex(operator),
  );
  const participant = await device.Participant.join(ledger, signed, () => new Set(history));
  await device.participate(address, token, participant, end.signal, (why) => say({ refused: why.message }));
  say({ ledger: (await ledger.state()) ?? null });
}

const running = [];
for (const ledger of ledgers) running.push(join(ledger, JSON.parse((await told.next()).value)));
await Promise.all(running);
