"""Sums in one message per client, between two servers of which one must be honest.

A client draws a 32-byte seed and sends, in one message,

    to server 0   its elements less the keystream of the seed    (in the ring, packed)
    to server 1   the seed

each sealed to that server's key and signed by the client, so that both parts may pass through one relay. Each server
adds the shares of the uploads that reached both and releases its sum once; the two sums add up to the total. A client
that falls silent is absent, whenever it does so: nobody waits for it, and no second message exists.

What one server alone learns of a vector: nothing, as long as AES-256 in counter mode is pseudorandom, because server 0
sees elements under an unknown keystream and server 1 a seed that is drawn independently of them. Both together learn
everything. Each server enforces its own smallest sum over clients that its own directory knows, counts a client once,
and releases one sum per number; so an honest server suffices for all three. A server may leave clients out, may make
the sum wrong, and sees who takes part. A client may send any vector, unless the terms bound its norm
(`max_squared_norm`): then it proves the bound, and the servers leave it out otherwise.

Noise: clients add shares of noise before they upload (`secure_agg.noise`), or each server adds its own to its share
(`noise=`), which holds against the other server and against whoever sees the total, at twice the variance.

    terms      what a sum is bound to           server       what a server does, and the set that both agree on
    uploads    one client's message, sealed     client       what a client does, and what it refuses
    shares     in the ring, or with a proof     norm_proof   refusing vectors outside a clip
    field      arithmetic of the proofs         products     proofs that shared inner products are right
    simulation all parties in one process

Sources: additive shares compressed to seeds as in Corrigan-Gibbs and Boneh, "Prio: Private, Robust, and Scalable
Computation of Aggregate Statistics" (NSDI 2017); the set of uploads that two servers agree on before they release as in
the Distributed Aggregation Protocol of the IETF's PPM group.
"""

from secure_agg.primitives.keys import Identity, KeyPair
from secure_agg.two_server.client import SumClient
from secure_agg.two_server.norm_proof import NormBound
from secure_agg.two_server.server import SumResult, SumServer
from secure_agg.two_server.simulation import TwoServerResult, aggregate_between_two
from secure_agg.two_server.terms import SumTerms, roster_digest

__all__ = [
    "Identity",
    "KeyPair",
    "NormBound",
    "SumClient",
    "SumResult",
    "SumServer",
    "SumTerms",
    "TwoServerResult",
    "aggregate_between_two",
    "roster_digest",
]
