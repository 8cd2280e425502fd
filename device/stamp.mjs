/** Note of which sources `dist` was compiled: `npm run build` writes it, and a test compares it with the sources. */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";

const folder = new URL("src/", import.meta.url);
const digest = (name) => createHash("sha256").update(readFileSync(new URL(name, folder))).digest("hex");
const sources = Object.fromEntries(readdirSync(folder).sort().map((name) => [name, digest(name)]));
writeFileSync(new URL("dist/sources.json", import.meta.url), `${JSON.stringify(sources, null, 1)}\n`);
