/**
 * One device for tests of a federation: prints its public key, reads what it is told on one line, and takes part until
 * the input ends. `tests/device_client/aggregator.py` starts it.
 */

import { createInterface } from "node:readline";

import * as device from "./dist/index.js";

const identity = await device.Identity.generate();
console.log(device.hex(identity.publicKey));
const end = new AbortController();
const lines = createInterface({ input: process.stdin });
lines.on("close", () => end.abort());
const told = JSON.parse((await lines[Symbol.asyncIterator]().next()).value);
const ledger = new device.Ledger(new device.MemoryStore());
await ledger.allow(told.policy);
const directory = new Map(Object.entries(told.directory).map(([id, key]) => [Number(id), device.fromHex(key)]));
const participant = new device.Participant(
  told.node, ledger, identity, told.rules, directory, () => new Set(told.history),
);
const refused = (why) => console.log(JSON.stringify({ refused: why.message }));
const running = device.participate(told.address, told.node, told.token, participant, end.signal, refused);
await running;
console.log(JSON.stringify({ ledger: (await ledger.state()) ?? null }));
