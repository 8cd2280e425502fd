/** A person's own device: recommendations and the private step of `private-gram` and `popularity`, without Python and without a library. */
export * from "./bytes.js";
export * from "./crypto.js";
export * from "./federation.js";
export * from "./history.js";
export * from "./identity.js";
export * from "./ledger.js";
export * from "./masking.js";
export * from "./model.js";
export * from "./noise.js";
export * from "./participant.js";
export * from "./ring.js";
export * from "./terms.js";
export * from "./upload.js";
