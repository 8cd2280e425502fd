"""The number of neighbours each client needs, and the threshold of neighbours that rebuild its secrets.

More neighbours (k) cost time and bytes; a higher threshold (t) tolerates more corrupt clients and fewer dropouts. For n
clients, of whom C collude with the server and D drop out, this module finds the smallest even k, then the smallest t,
such that

1. k/2 < t <= k: the honest neighbours of a client cannot be split into two groups that each rebuild one of its secrets.
2. exposed: no client has so many corrupt neighbours that both its secrets are known. A curious server needs t of them.
   An active one may send neighbours different lists: it gets a share of one secret from an honest neighbour, of both
   from a corrupt one; with c corrupt it holds k + c shares and needs 2t of them.
3. disconnected: the honest survivors form a connected subgraph, or the server learns the sum over every component.
   Clients are on a random circle, each joined to the k/2 on either side, and a circle is disconnected only if it is cut
   in two places, by two disjoint runs of k/2 positions without an honest survivor. With a curious server those are
   corrupt or dropped. An active one drops any client it chooses and tells each what it likes, but under signed terms a
   run contains at least t - k/2 corrupt clients (proof below), on a circle of at least 4k clients.
4. aborted: every client keeps t neighbours who have not dropped out, or its mask cannot be removed.

2 and 3 fail with a probability of at most 2^-(security + grinding bits) each, 4 of at most 2^-(dropout bits): tails of
the hypergeometric distribution, summed over all clients (2, 4) or all pairs of runs (3). Grinding bits are for a server
that can try many graphs before it chooses one.

In the complete graph (k = n - 1) all conditions are deterministic: t > (n - 1)/2, t > C or, against an active server,
2t >= n + C (`Terms.max_corrupt`), and t <= n - 1 - D.

Condition 3 against an active server. Let F be honest clients whose sum it learns, none of whose parts it learns. Client
u masked with the neighbours on a list A(u), and signed A(u) with its input. Every honest client in A(u) within k/2 of u
is in F, or its mask key is known, else a mask of u is left. A client whose mask key is known reveals nothing: a
threshold of its neighbours called it dropped, so fewer than t confirm a list with it, by condition 2. And who does not
mask under A(u) reveals no share of the self-mask seed of u, because it saw the signature of u over another list than
its own. So the seed of u comes from F and corrupt clients alone.

- Let no client of F be among the k/2 positions after u. At most k/2 shares of the seed are from before u, so at least t
  - k/2 of the positions after it are corrupt. The same holds of the positions before the first client after a gap. So
  two gaps of F (at least k/2 positions each), or one of at least k, hold two such runs.
- Let F have no gap but one shorter than k. All honest clients of the circle but those with a known mask key, or under
  other lists, are within reach of F: it is the sum over the survivors, less those that another list left out.
- Let there be two such sums, F and G, each with at most one gap, of less than k. A gap of F holds a run as above, and
  so does one of G that is disjoint from it. Elsewhere let u in F and v in G, at a distance of x, have neither between
  them. The shares of both seeds, 2t, are from F, G and corrupt clients outside of the x - 1 positions between, and from
  b corrupt ones there: 2t <= k + c + 2b, where c more corrupt are neighbours of both, so one of the two runs of k/2
  that begin at u towards v, or at v towards u, holds t - k/2 corrupt. On a circle of 4k clients a stretch of 3k/2 is
  disjoint from both gaps, or two such stretches from each other where there is none, so that there are two disjoint
  runs.

Without the signed inputs honest clients alone cut the circle up to t of about 0.6 k: those beyond a cut, who masked
under a list that the server cut differently, reveal the seeds that it needs.

Sharp edges:

- Against an active server every bound presumes signed terms, under which clients compare lists of survivors before they
  answer. Without that, honest clients alone suffice to isolate a single client on the circle at any t up to about
  0.6 k, and a segment of the circle up to about 0.7 k, because each may be sent a list on which k - t of its neighbours
  dropped out.
- Who is corrupt is settled before the graph is. Its order follows from public numbers, so a server that could corrupt
  clients of its choice once it knows them would take neighbours. In the complete graph that is no advantage.
- A sum against an active server is one sum, and its clients stand all around the circle; but a server that lies may
  leave some out whom the lists contain.
- Against a curious server 3 presumes no more than D dropouts, because the server does not choose them.
- 4 presumes that corrupt clients answer like others. They can always abort a round, but not break its secrecy.

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

COMPLETE_GRAPH_MAX_CLIENTS = 60
"""Up to this number of clients a sparse graph saves little."""

GRINDING_BITS = 64
"""Number of graphs that an active server is assumed to try, as a power of two."""

MIN_CIRCLE = 4
"""Clients on the circle of signed terms, at least, as a multiple of the neighbours."""

_MIN_CLIENTS = 3
_NEGLIGIBLE = 2.0**-60
_CHUNK = 1024


class ServerAdversary(StrEnum):
    """The threat model of the server."""

    CURIOUS = "curious"
    """Semi-honest: it follows the protocol and pools its view with corrupt clients."""
    ACTIVE = "active"
    """Malicious: it may also send arbitrary messages to each client."""


@dataclass(frozen=True, slots=True)
class MaskingParameters:
    """A graph, a threshold, and their guarantees.

    Attributes:
        clients: n, number of clients in the round.
        neighbours: k, number of clients that each shares masks with; 0 for all others.
        threshold: t, number of neighbours that can together rebuild a client's secrets.
        server: threat model of the server.
        corrupt: C, number of clients that may collude with the server.
        dropouts: D, number of clients that may drop out.
        log2_exposed: log2 of a bound on the probability that both secrets of some client are known; -inf for never.
        log2_disconnected: the same for a sum over only some of the honest survivors.
        log2_aborted: the same for a round that D dropouts abort.
    """

    clients: int
    neighbours: int
    threshold: int
    server: ServerAdversary
    corrupt: int
    dropouts: int
    log2_exposed: float
    log2_disconnected: float
    log2_aborted: float

    @property
    def summary(self) -> str:
        """The guarantees in one paragraph."""
        others = self.neighbours or f"all {self.clients - 1}"
        behaviour = (
            "follows the protocol" if self.server is ServerAdversary.CURIOUS else "deviates, under signed terms,"
        )
        per_graph = " for each graph it can try" if self.server is ServerAdversary.ACTIVE and self.neighbours else ""
        exposed, disconnected, aborted = map(
            _probability, (self.log2_exposed, self.log2_disconnected, self.log2_aborted)
        )
        return (
            f"Each of {self.clients} clients shares masks with {others} others, and any {self.threshold} of those can "
            f"rebuild its secrets. The probability that a server that {behaviour} and knows all that {self.corrupt} of "
            f"the clients know unmasks a single client is {exposed}{per_graph}, that it learns the sum of only some of "
            f"the honest survivors is {disconnected}{per_graph}, and that the round fails when {self.dropouts} clients "
            f"drop out is {aborted}."
        )


def choose_parameters(
    clients: int,
    *,
    corrupt: float = 0.1,
    dropout: float = 0.1,
    server: ServerAdversary = ServerAdversary.CURIOUS,
    security_bits: int = 40,
    dropout_bits: int = 20,
    grinding_bits: int | None = None,
    complete_graph_max_clients: int = COMPLETE_GRAPH_MAX_CLIENTS,
) -> MaskingParameters:
    """The smallest even k, then the smallest t, that satisfy conditions 1 to 4 of this module.

    Args:
        clients: n, at least 3.
        corrupt: maximum fraction of clients that collude with the server, from 0 to below 1; C = floor(corrupt n).
        dropout: maximum fraction that drops out, likewise.
        server: threat model of the server.
        security_bits: secrecy fails with probability at most 2^-security_bits.
        dropout_bits: D dropouts abort the round with probability at most 2^-dropout_bits.
        grinding_bits: number of graphs that the server can try, as a power of two; `None` is 0 for a curious and 64 for
            an active one.
        complete_graph_max_clients: number of clients up to which the complete graph is chosen. Beyond it is chosen
            where no sparse one satisfies the conditions; against an active server those need 4k clients.

    Raises:
        ConfigurationError: an argument out of range, or no k and t satisfy the conditions; the message says what would
            help.
    """
    round_ = _Round.from_fractions(clients, corrupt, dropout, server)
    if grinding_bits is None:
        grinding_bits = 0 if round_.server is ServerAdversary.CURIOUS else GRINDING_BITS
    for name, bits in (
        ("security_bits", security_bits),
        ("dropout_bits", dropout_bits),
        ("grinding_bits", grinding_bits),
    ):
        if bits < 0:
            raise ConfigurationError(f"{name} is {bits}; give 0 or more")
    if clients > complete_graph_max_clients:
        sparse = round_.smallest_sparse_graph(-security_bits - grinding_bits, -dropout_bits)
        if sparse is not None:
            return round_.parameters(*sparse)
    return round_.parameters(0, round_.min_complete_threshold())


def assess_parameters(
    clients: int, neighbours: int, threshold: int, corrupt: float, dropout: float, server: ServerAdversary
) -> MaskingParameters:
    """The guarantees of a given graph and threshold.

    Args:
        clients: n, at least 3.
        neighbours: k, even and below n - 1, or 0 or n - 1 for the complete graph.
        threshold: t, with k/2 < t <= k.
        corrupt: fraction of clients that collude with the server, from 0 to below 1.
        dropout: fraction that drops out, likewise.
        server: threat model of the server.

    Raises:
        ConfigurationError: an argument out of range; below half its neighbours a threshold guarantees nothing.
    """
    round_ = _Round.from_fractions(clients, corrupt, dropout, server)
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


def log2_insecure(clients: int, neighbours: int, threshold: int, corrupt: int) -> float:
    """log2 of a bound on the probability that a graph of signed terms fails condition 2 or 3.

    Args:
        clients: n.
        neighbours: k, even and below n - 1.
        threshold: t, with k/2 < t <= k.
        corrupt: number of clients that may collude with a server that lies.
    """
    round_ = _Round(clients, min(corrupt, clients), 0, ServerAdversary.ACTIVE)
    return max(round_.log2_exposed(neighbours, threshold), round_.log2_disconnected(neighbours, threshold))


@dataclass(frozen=True, slots=True)
class _Round:
    """n, C and D, and the probabilities that follow from them.

    Neighbours of a client are sampled among the n - 1 others, and all C and D are counted among those, which is
    conservative for a client that is itself corrupt or dropped.
    """

    clients: int
    corrupt: int
    dropouts: int
    server: ServerAdversary

    @classmethod
    def from_fractions(cls, clients: int, corrupt: float, dropout: float, server: ServerAdversary) -> "_Round":
        if clients < _MIN_CLIENTS:
            raise ConfigurationError(f"{clients} clients were given; a sum of fewer than {_MIN_CLIENTS} hides nobody")
        for name, fraction in (("corrupt", corrupt), ("dropout", dropout)):
            if not 0 <= fraction < 1:
                raise ConfigurationError(f"{name} is {fraction}; give a fraction of the clients from 0 to below 1")
        return cls(
            clients, _decimal_floor(corrupt * clients), _decimal_floor(dropout * clients), ServerAdversary(server)
        )

    def parameters(self, neighbours: int, threshold: int) -> MaskingParameters:
        """The parameters and their guarantees; `neighbours` may be 0."""
        if neighbours:
            logs = (
                self.log2_exposed(neighbours, threshold),
                self.log2_disconnected(neighbours, threshold),
                self.log2_aborted(neighbours, threshold),
            )
        else:
            others = self.clients - 1
            logs = (
                0.0 if self.corrupt >= self._min_corrupt_to_expose(others, threshold) else -math.inf,
                -math.inf,
                0.0 if others - self.dropouts < threshold else -math.inf,
            )
        return MaskingParameters(self.clients, neighbours, threshold, self.server, self.corrupt, self.dropouts, *logs)

    def smallest_sparse_graph(self, security: float, completion: float) -> tuple[int, int] | None:
        """Smallest even k, then t, with log2 of 2 and 3 at most `security` and of 4 at most `completion`."""
        # As k grows by some steps, the smallest safe t never falls, and the largest t that still completes rises by no
        # more than the steps. So where the first exceeds the second by d, no k closer than d can do, and the search
        # skips d.
        half_limit = (self.clients - 2) // 2 + 1
        if self.server is ServerAdversary.ACTIVE:
            half_limit = self.clients // (2 * MIN_CIRCLE) + 1
        neighbours = 2 * _first(1, half_limit, lambda half: self.log2_disconnected(2 * half, 2 * half) <= security)
        while neighbours < 2 * half_limit:
            min_threshold = self._min_safe_threshold(neighbours, security)
            max_threshold = self._max_completing_threshold(neighbours, completion)
            if min_threshold <= max_threshold:
                return neighbours, min_threshold
            neighbours += max(2, (min_threshold - max_threshold) // 2 * 2)
        return None

    def min_complete_threshold(self) -> int:
        """The smallest t for the complete graph."""
        others = self.clients - 1
        curious, majority = self.server is ServerAdversary.CURIOUS, others // 2 + 1
        beyond_corrupt = self.corrupt + 1 if curious else (others + self.corrupt) // 2 + 1
        minimum, staying = max(majority, beyond_corrupt), others - self.dropouts
        if minimum > staying:
            remedies = [f"plan for at most {others - minimum} dropouts"] if minimum <= others else []
            if minimum > majority:
                remedies.append("lower the corrupt fraction")
            raise ConfigurationError(
                f"with {self.corrupt} corrupt clients of {self.clients} even the complete graph needs a threshold of "
                f"{minimum}, and {self.dropouts} dropouts leave a client {staying} neighbours; "
                f"{' or '.join(remedies)}"
            )
        return minimum

    def log2_exposed(self, neighbours: int, threshold: int) -> float:
        minimum = self._min_corrupt_to_expose(neighbours, threshold)
        return min(0.0, math.log2(self.clients) + _log2_tail(self.clients - 1, self.corrupt, neighbours, minimum))

    def log2_disconnected(self, neighbours: int, threshold: int) -> float:
        """log2 of a bound on the probability that two disjoint runs of unhelpful clients cut the circle."""
        # The second run is sampled from the clients that remain when the first contains no more unhelpful ones than it
        # must. The more the first contains, the fewer remain for the second, so the product bounds the joint
        # probability from above.
        run = neighbours // 2
        if self.server is ServerAdversary.ACTIVE and self.clients < MIN_CIRCLE * neighbours:
            return 0.0
        if self.server is ServerAdversary.CURIOUS:
            unhelpful, minimum = min(self.clients, self.corrupt + self.dropouts), run
        else:
            unhelpful, minimum = self.corrupt, threshold - run
        first = _log2_tail(self.clients, unhelpful, run, minimum)
        if first == -math.inf:
            return first
        second = _log2_tail(self.clients - run, unhelpful - minimum, run, minimum)
        return min(0.0, math.log2(math.comb(self.clients, 2)) + first + second)

    def log2_aborted(self, neighbours: int, threshold: int) -> float:
        min_dropped = neighbours - threshold + 1
        return min(0.0, math.log2(self.clients) + _log2_tail(self.clients - 1, self.dropouts, neighbours, min_dropped))

    def _min_corrupt_to_expose(self, neighbours: int, threshold: int) -> int:
        """Number of corrupt neighbours from which the server learns both secrets of a client."""
        return threshold if self.server is ServerAdversary.CURIOUS else 2 * threshold - neighbours

    def _min_safe_threshold(self, neighbours: int, security: float) -> int:
        return _first(
            neighbours // 2 + 1,
            neighbours + 1,
            lambda threshold: (
                self.log2_exposed(neighbours, threshold) <= security
                and self.log2_disconnected(neighbours, threshold) <= security
            ),
        )

    def _max_completing_threshold(self, neighbours: int, completion: float) -> int:
        return _first(1, neighbours + 1, lambda threshold: self.log2_aborted(neighbours, threshold) > completion) - 1


def _decimal_floor(amount: float) -> int:
    """The floor of a decimal product: 0.29 of 100 is 29, although the product of the two floats is slightly less."""
    return math.floor(round(amount, 6))


def _first(start: int, stop: int, holds: Callable[[int], bool]) -> int:
    """The first number from `start` for which a monotone condition holds, or `stop`, by bisection."""
    return start + bisect_left(range(start, stop), x=True, key=holds)


def _log2_tail(population: int, marked: int, sample: int, minimum: int) -> float:
    """log2 P(at least `minimum` of a sample without replacement are marked); -inf where that is impossible.

    The error comes from the logarithms of factorials: below 1e-6 for populations up to ten million.
    """
    if minimum <= max(0, sample + marked - population):
        return 0.0
    if minimum > min(sample, marked):
        return -math.inf
    if minimum * population <= sample * marked:
        # Below the mean the tail is close to 1: sum the complementary tail, whose terms fall.
        complement = 2 ** _log2_tail(population, population - marked, sample, sample - minimum + 1)
        return math.log1p(-complement) / math.log(2)
    # Hypergeometric terms from `minimum` on: the first in logarithms, the others by their ratios, which fall. So
    # nothing underflows however small the tail is, and the series ends once the terms are negligible.
    term = series = 1.0
    for start in range(minimum, min(sample, marked), _CHUNK):
        count = np.arange(start, min(start + _CHUNK, sample, marked), dtype=np.float64)
        ratios = (marked - count) * (sample - count) / ((count + 1) * (population - marked - sample + count + 1))
        terms = term * np.cumprod(ratios)
        term, series = float(terms[-1]), series + float(terms.sum())
        if term < series * _NEGLIGIBLE:
            break
    first = _log_binomial(marked, minimum) + _log_binomial(population - marked, sample - minimum)
    return (first - _log_binomial(population, sample)) / math.log(2) + math.log2(series)


def _log_binomial(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _probability(log2: float) -> str:
    """Rounded up."""
    if log2 == -math.inf:
        return "0"
    return f"at most 2^{math.ceil(log2 * 10) / 10:.1f}" if log2 < 0 else "up to 1"
