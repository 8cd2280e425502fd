"""How many neighbours each client needs, and how many of them should be able to rebuild its secrets.

More neighbours (k) cost time and bytes; a higher threshold (t) keeps more corrupt clients out and lets fewer drop out.
For n clients, of whom C work for the server and D drop out, this module finds the smallest even k, then the smallest t,
such that

1. k/2 < t <= k: the honest neighbours of a client cannot be split into two groups that each rebuild one of its secrets.
2. exposed: no client has so many corrupt neighbours that both its secrets are known. A curious server needs t of them.
   An active one may tell neighbours different stories: it gets a share of one secret from an honest neighbour, of both
   from a corrupt one; with c corrupt it holds k + c shares and needs 2t of them.
3. disconnected: the honest survivors hang together in the graph, or the server learns the sum of every piece. Clients
   stand in a random circle, each joined to the k/2 on either side, and a circle falls apart only when it is cut in two
   places, by two disjoint runs of k/2 places without a helpful client. To a curious server those are corrupt or
   dropped. An active one drops whom it likes, but the honest client beside a run answers only while t of its neighbours
   confirm the same list of survivors, and k/2 of them at most stand on its other side; so a run holds at least t - k/2
   corrupt.
4. unfinished: every client keeps t neighbours who have not dropped out, or its mask cannot be taken off.

2 and 3 fail with a probability of at most 2^-(security + grinding bits) each, 4 of at most 2^-(dropout bits): tails of
the hypergeometric distribution, summed over all clients (2, 4) or all pairs of runs (3). Grinding bits are for a server
that can try many graphs before it settles on one.

In the complete graph (k = n - 1) all is certain: t > (n - 1)/2, t > C or, against an active server, 2t > n - 1 + C, and
t <= n - 1 - D. Against an active server t is more than 2n/3 as well: signed terms of `secure_agg.masking` insist.

Sharp edges:

- Against an active server every bound presumes signed terms, under which clients compare lists of survivors before they
  answer. Without that, honest clients alone are enough to cut a single client out of the circle at any t up to about
  0.6 k, and a stretch of the circle up to about 0.7 k, because each may be told that k - t of its neighbours dropped.
- Against a curious server 3 presumes no more than D dropouts, because the server cannot choose them.
- 4 presumes that corrupt clients answer like others. They can always spoil a round, though not its secrecy.

Sources: Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning" (complete graph);
Bell et al. 2020, "Secure single-server aggregation with (poly)logarithmic overhead", section 3 (conditions 2 to 4).
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from secure_agg.errors import ConfigurationError

COMPLETE_UP_TO = 60
"""Up to so many clients a sparse graph saves little."""

GRINDING_BITS = 64
"""Graphs that a server which deviates is taken to try, as a power of two."""

_FEWEST_CLIENTS = 3
_NEGLIGIBLE = 2.0**-60
_TERMS = 1024


class Server(StrEnum):
    """What the server is feared to do."""

    CURIOUS = "curious"
    """Follow the protocol and pool what it sees with corrupt clients."""
    ACTIVE = "active"
    """Send each client what it likes as well."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """A graph, a threshold, and what they promise.

    Attributes:
        clients: n, in the round.
        neighbours: k, clients each shares masks with; 0 is all others.
        threshold: t, neighbours who can together rebuild a client's secrets.
        server: what it is feared to do.
        corrupt: C, clients who may work for the server.
        dropouts: D, clients who may drop out.
        log2_exposed: log2 of a bound on the probability that some client's both secrets are known; -inf is never.
        log2_disconnected: the same for a sum over only some of the honest survivors.
        log2_unfinished: the same for a round that D dropouts end.
    """

    clients: int
    neighbours: int
    threshold: int
    server: Server
    corrupt: int
    dropouts: int
    log2_exposed: float
    log2_disconnected: float
    log2_unfinished: float

    @property
    def sentence(self) -> str:
        """The promise in plain words."""
        others = self.neighbours or f"all {self.clients - 1}"
        deed = "follows the protocol" if self.server is Server.CURIOUS else "deviates, under signed terms,"
        each = " for each graph it can try" if self.server is Server.ACTIVE and self.neighbours else ""
        return (
            f"Each of {self.clients} clients shares masks with {others} others, and any {self.threshold} of those can "
            f"rebuild its secrets. The probability that a server that {deed} and knows all that {self.corrupt} of the "
            f"clients know opens a single client is {_chance(self.log2_exposed)}{each}, that it learns the sum of only "
            f"some of the honest survivors is {_chance(self.log2_disconnected)}{each}, and that the round fails when "
            f"{self.dropouts} clients drop out is {_chance(self.log2_unfinished)}."
        )


def choose(
    clients: int,
    *,
    corrupt: float = 0.1,
    dropout: float = 0.1,
    server: Server = Server.CURIOUS,
    security_bits: int = 40,
    dropout_bits: int = 20,
    grinding_bits: int | None = None,
    complete_up_to: int | None = None,
) -> Parameters:
    """The smallest even k, then the smallest t, that keep conditions 1 to 4 of this module.

    Args:
        clients: n, at least 3.
        corrupt: largest share of clients who work for the server, from 0 to below 1; C = floor(corrupt n).
        dropout: largest share who drop out, likewise.
        server: what it is feared to do.
        security_bits: secrecy fails with probability 2^-security_bits at most.
        dropout_bits: a round that loses D clients fails with probability 2^-dropout_bits at most.
        grinding_bits: graphs the server can try, as a power of two; `None` is 0 for a curious and 64 for an active one.
        complete_up_to: the complete graph is taken for so many clients or fewer. `None` is 60 for a curious server, and
            any number for an active one, because signed terms of `secure_agg.masking` need the complete graph.

    Raises:
        ConfigurationError: an argument out of range, or no k and t keep the conditions; it says what would help.
    """
    round_ = _Round.of(clients, corrupt, dropout, server)
    curious = round_.server is Server.CURIOUS
    if grinding_bits is None:
        grinding_bits = 0 if curious else GRINDING_BITS
    if complete_up_to is None:
        complete_up_to = COMPLETE_UP_TO if curious else clients
    for name, bits in (
        ("security_bits", security_bits),
        ("dropout_bits", dropout_bits),
        ("grinding_bits", grinding_bits),
    ):
        if bits < 0:
            raise ConfigurationError(f"{name} is {bits}; give 0 or more")
    if clients > complete_up_to:
        sparse = round_.sparsest(-security_bits - grinding_bits, -dropout_bits)
        if sparse is not None:
            return round_.parameters(*sparse)
    return round_.parameters(0, round_.least_complete_threshold())


def assess(clients: int, neighbours: int, threshold: int, corrupt: float, dropout: float, server: Server) -> Parameters:
    """What a graph and a threshold that somebody else chose promise, in the numbers of `choose`.

    Args:
        clients: n, at least 3.
        neighbours: k, even and below n - 1, or 0 or n - 1 for the complete graph.
        threshold: t, with k/2 < t <= k.
        corrupt: share of clients who work for the server, from 0 to below 1.
        dropout: share who drop out, likewise.
        server: what it is feared to do.

    Raises:
        ConfigurationError: an argument out of range; below half its neighbours a threshold promises nothing.
    """
    round_ = _Round.of(clients, corrupt, dropout, server)
    if neighbours == clients - 1:
        neighbours = 0
    if neighbours % 2 or not 0 <= neighbours < clients:
        raise ConfigurationError(
            f"neighbours is {neighbours} among {clients} clients; give an even number below {clients - 1}, or 0 for all"
        )
    degree = neighbours or clients - 1
    if not degree / 2 < threshold <= degree:
        raise ConfigurationError(
            f"threshold is {threshold} of {degree} neighbours; choose more than half of them and at most all"
        )
    return round_.parameters(neighbours, threshold)


@dataclass(frozen=True, slots=True)
class _Round:
    """n, C and D, and the probabilities that follow from them.

    Neighbours of a client are drawn among the n - 1 others, and all C and D are counted among those, which errs on the
    safe side for a client that is itself corrupt or dropped.
    """

    clients: int
    corrupt: int
    dropouts: int
    server: Server

    @classmethod
    def of(cls, clients: int, corrupt: float, dropout: float, server: Server) -> "_Round":
        if clients < _FEWEST_CLIENTS:
            raise ConfigurationError(
                f"{clients} clients were given; a sum of fewer than {_FEWEST_CLIENTS} hides nobody"
            )
        for name, share in (("corrupt", corrupt), ("dropout", dropout)):
            if not 0 <= share < 1:
                raise ConfigurationError(f"{name} is {share}; give a share of the clients from 0 to below 1")
        return cls(clients, _whole(corrupt * clients), _whole(dropout * clients), Server(server))

    def parameters(self, neighbours: int, threshold: int) -> Parameters:
        """With the numbers of this choice; `neighbours` may be 0."""
        if neighbours:
            logs = (
                self.log2_exposed(neighbours, threshold),
                self.log2_disconnected(neighbours, threshold),
                self.log2_unfinished(neighbours, threshold),
            )
        else:
            everybody = self.clients - 1
            logs = (
                0.0 if self.corrupt >= self._corrupt_to_expose(everybody, threshold) else -math.inf,
                -math.inf,
                0.0 if everybody - self.dropouts < threshold else -math.inf,
            )
        return Parameters(self.clients, neighbours, threshold, self.server, self.corrupt, self.dropouts, *logs)

    def sparsest(self, security: float, completion: float) -> tuple[int, int] | None:
        """Smallest even k, then t, with log2 of 2 and 3 at most `security` and of 4 at most `completion`.

        As k grows by some steps the least safe t never falls, and the greatest t that still finishes rises by no more
        than the steps. So where the first exceeds the second by d, no k closer than d can do, and the search leaps.
        """
        half_limit = (self.clients - 2) // 2 + 1
        neighbours = 2 * _first(1, half_limit, lambda half: self.log2_disconnected(2 * half, 2 * half) <= security)
        while neighbours < 2 * half_limit:
            least = self._least_safe_threshold(neighbours, security)
            most = self._greatest_threshold(neighbours, completion)
            if least <= most:
                return neighbours, least
            neighbours += max(2, (least - most) // 2 * 2)
        return None

    def least_complete_threshold(self) -> int:
        """The least t for the complete graph."""
        everybody = self.clients - 1
        if self.server is Server.CURIOUS:
            majority, beyond_corrupt = everybody // 2 + 1, self.corrupt + 1
        else:
            majority, beyond_corrupt = 2 * self.clients // 3 + 1, (everybody + self.corrupt) // 2 + 1
        least, staying = max(majority, beyond_corrupt), everybody - self.dropouts
        if least > staying:
            remedies = [f"plan for at most {everybody - least} dropouts"] if least <= everybody else []
            if least > majority:
                remedies.append("lower the corrupt share")
            raise ConfigurationError(
                f"with {self.corrupt} corrupt clients of {self.clients} even the complete graph needs a threshold of "
                f"{least}, and {self.dropouts} dropouts leave a client {staying} neighbours; "
                f"{' or '.join(remedies) or 'invite more clients'}"
            )
        return least

    def log2_exposed(self, neighbours: int, threshold: int) -> float:
        least = self._corrupt_to_expose(neighbours, threshold)
        return min(0.0, math.log2(self.clients) + _log2_tail(self.clients - 1, self.corrupt, neighbours, least))

    def log2_disconnected(self, neighbours: int, threshold: int) -> float:
        """Two runs: the second is drawn from what the first leaves over when it holds no more than it must.

        The more the first holds, the fewer remain for the second, so the product is at least the joint probability.
        """
        run = neighbours // 2
        if self.server is Server.CURIOUS:
            unhelpful, least = min(self.clients, self.corrupt + self.dropouts), run
        else:
            unhelpful, least = self.corrupt, threshold - run
        first = _log2_tail(self.clients, unhelpful, run, least)
        if first == -math.inf:
            return first
        second = _log2_tail(self.clients - run, unhelpful - least, run, least)
        return min(0.0, math.log2(math.comb(self.clients, 2)) + first + second)

    def log2_unfinished(self, neighbours: int, threshold: int) -> float:
        gone = neighbours - threshold + 1
        return min(0.0, math.log2(self.clients) + _log2_tail(self.clients - 1, self.dropouts, neighbours, gone))

    def _corrupt_to_expose(self, neighbours: int, threshold: int) -> int:
        """Corrupt neighbours that give the server both secrets of a client."""
        return threshold if self.server is Server.CURIOUS else 2 * threshold - neighbours

    def _least_safe_threshold(self, neighbours: int, security: float) -> int:
        return _first(
            neighbours // 2 + 1,
            neighbours + 1,
            lambda threshold: (
                self.log2_exposed(neighbours, threshold) <= security
                and self.log2_disconnected(neighbours, threshold) <= security
            ),
        )

    def _greatest_threshold(self, neighbours: int, completion: float) -> int:
        return _first(1, neighbours + 1, lambda threshold: self.log2_unfinished(neighbours, threshold) > completion) - 1


def _whole(amount: float) -> int:
    """The floor, where 0.29 of 100 is 29 although the product of the two floats is a little less."""
    return math.floor(round(amount, 6))


def _first(start: int, stop: int, holds: Callable[[int], bool]) -> int:
    """The first number from start on for which a condition holds that holds for all larger ones too; else stop."""
    return start + bisect_left(range(start, stop), x=True, key=holds)


def _log2_tail(population: int, marked: int, drawn: int, least: int) -> float:
    """log2 P(at least `least` of `drawn` are marked), drawing without replacement; -inf where that cannot be.

    The first term in logarithms, the others by their ratios, which fall; so nothing is lost however small the tail. The
    error comes from the logarithms of factorials: below 1e-6 for populations up to ten million.
    """
    if least <= max(0, drawn + marked - population):
        return 0.0
    if least > min(drawn, marked):
        return -math.inf
    if least * population <= drawn * marked:
        return math.log1p(-(2 ** _log2_tail(population, population - marked, drawn, drawn - least + 1))) / math.log(2)
    term = series = 1.0
    for start in range(least, min(drawn, marked), _TERMS):
        count = np.arange(start, min(start + _TERMS, drawn, marked), dtype=np.float64)
        ratios = (marked - count) * (drawn - count) / ((count + 1) * (population - marked - drawn + count + 1))
        terms = term * np.cumprod(ratios)
        term, series = float(terms[-1]), series + float(terms.sum())
        if term < series * _NEGLIGIBLE:
            break
    first = _log_comb(marked, least) + _log_comb(population - marked, drawn - least) - _log_comb(population, drawn)
    return first / math.log(2) + math.log2(series)


def _log_comb(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _chance(log2: float) -> str:
    """Rounded up."""
    if log2 == -math.inf:
        return "0"
    return f"at most 2^{math.ceil(log2 * 10) / 10:.1f}" if log2 < 0 else "up to 1"
