/**
 * One device for tests of a federation: prints its public key, reads what it is told on one line, and takes part until
 * the input ends. `tests/device_client/aggregator.py` starts it.
 */

import { createInterface } from "node:readline";

import * as device from "./dist/index.js";

const ledger = new device.Ledger(new device.MemoryStore());
console.log(device.hex((await ledger.identity()).publicKey));
const end = new AbortController();
const lines = createInterface({ input: process.stdin });
lines.on("close", () => end.abort());
const told = JSON.parse((await lines[Symbol.asyncIterator]().next()).value);
await ledger.allow(told.policy);
const federation = await device.Federation.read(
  device.ascii(told.federation), device.fromHex(told.signature), device.fromHex(told.operator),
);
const participant = await device.Participant.join(ledger, federation, () => new Set(told.history));
const refused = (why) => console.log(JSON.stringify({ refused: why.message }));
await device.participate(told.address, told.token, participant, end.signal, refused);
console.log(JSON.stringify({ ledger: (await ledger.state()) ?? null }));
