"""Low-level building blocks: keystreams (`prg`) and key agreement, derivation, encryption and signatures (`keys`).

Misuse here is silent: a key used for two streams, or a nonce used twice, hides nothing. The protocols of this library
use them correctly; code outside it should prefer those protocols.
"""
