"""What else `private-gram` could make of its release, or ask for, tried on validation parts.

    python -m benchmarks.quality.gram_trials estimates
    python -m benchmarks.quality.gram_trials doubting --seeds 4
    python -m benchmarks.quality.gram_trials tail --data lastfm-2k
    python -m benchmarks.quality.gram_trials donors --data ml-1m --epsilons 8

Every trial starts from the same release as the shipped method beside it (for `tail`, from one with the same total
noise), and differs in what is made of it. Data, splits and people scored are those of `floor.py` on validation: fitted
on training items, full ranking, NDCG@20, Recall@20 and how many different items all lists of 20 hold. Central noise for
a whole person (add or remove one), delta = people^-1.1. No test item is looked at. "over_shipped" is the difference by
person, noise seeds averaged, with its 95 % interval over people (bootstrap, 2,000).

`estimates`: what lies below the edge of the noise left out, or taken whatever the copies say; ridge and EASE's forms;
single pairs; rotation-invariant shrinkage of the whole spectrum (Bun, Allez, Bouchaud and Potters, 2016), alone and
where thinned copies of the release prefer it; residual entries shrunk by cells of popularity.
`doubting`: strengths of eigenpairs times their trust once more, which lessens those near the edge of the noise; of what
lies below it the positive side; and both. They were found on the first two noise seeds.
`learned`: shares of eigenvectors learned by a small network from other catalogues' matrices under simulated noise, the
catalogue's own family left out, without metadata; and the best shares there are, by the matrix without noise.
`tail`: a block of the second query of items outside the head by items on it, within the same clip, as `tail_block`
says; and what that block would give without noise.
`donors`: settings chosen by how well 5 % of people, drawn at random, who open their histories, get items back that were
hidden from half of them, the other half pooled; and the best setting by the validation items themselves.

One process, one thread; results go to `benchmarks/results/gram_trials.json` after every row, and rows found there are
not repeated.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from benchmarks import harness
from benchmarks.quality.donors import opened
from benchmarks.quality.floor import CATALOGUES, Catalogue
from benchmarks.quality.private_gram import GRAM, PROTOCOL, K, configured, plan
from benchmarks.quality.ranking import by_user, interval, paired_interval
from benchmarks.running import expect, simulation_of
from privfed.compute.linear_algebra import eigenpairs, solve_positive
from privfed.data import Donors, Histories, Split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.methods.private_gram import PrivateGramConfig, PrivateGramServer
from privfed.methods.private_gram.donations import Donations
from privfed.methods.private_gram.model.choosing import ThinnedCopies, predicted_risk
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram
from privfed.methods.private_gram.model.pooling import OpenMean, pooled_pairs
from privfed.methods.private_gram.model.spiked import edge_of
from privfed.methods.private_gram.queries import centred
from privfed.methods.shared.popular_head import HEAD, ORDER, SCALE, SHARES, WEIGHTS, over_catalogue
from privfed.methods.shared.vae_clients import UserRows

DATA = ("ml-1m", "ml-100k", "lastfm-2k", "tenrec-qba-small")
PARTS = ("estimates", "doubting", "learned", "tail", "donors")
EPSILONS: Mapping[str, tuple[float, ...]] = {"donors": (1.0, 4.0, 8.0), "doubting": (1.0, 8.0, 2.0, 4.0)}
SHARE = 0.05
POSITIVE = 0.15
RIDGE, PAIRS, CELLS, MARGIN = 8.0, 0.6, 12, 1.01
_AT_ONCE = 512
_DISCOUNTS = 1 / np.log2(np.arange(2, K + 2))
_BEST = np.concatenate([[0.0], np.cumsum(_DISCOUNTS)])

Weights = np.ndarray


class Observed(PrivateGramServer):
    """A server that keeps what it estimates from.

    Attributes:
        evidence: what weights are made of, None without a Gram matrix.
        private: the same before donors are pooled with it.
        copies: of the release, to choose by.
        chosen: settings of the weights, None where popularity stands alone.
    """

    evidence: NoisyGram | None = None
    private: NoisyGram | None = None
    copies: ThinnedCopies | None = None
    chosen: EstimatorSettings | None = None

    def _joined(
        self, evidence: NoisyGram, copies: ThinnedCopies | None, donated: OpenMean
    ) -> tuple[NoisyGram, ThinnedCopies | None]:
        self.private = evidence
        return super()._joined(evidence, copies, donated)

    def _recipe(self, evidence: NoisyGram, copies: ThinnedCopies | None, *, short: bool) -> EstimatorSettings | None:
        self.evidence, self.copies = evidence, copies
        self.chosen = super()._recipe(evidence, copies, short=short)
        return self.chosen


@dataclass(frozen=True)
class Lists:
    """Metrics of every person who is scored, and how many different items their lists hold."""

    ndcg: np.ndarray
    recall: np.ndarray
    items: int


class Case:
    """One release, and lists from whatever is made of it.

    Attributes:
        server: after its queries.
        parts: whose training items were asked for.
    """

    def __init__(
        self, data: str, whole: Split, epsilon: float, seed: int, *, donated: bool = False, **settings: Any
    ) -> None:
        self.parts = opened(whole, "random", SHARE, seed) if donated else whole
        privacy = plan(epsilon, self.parts.train.n_users)
        config = configured(CATALOGUES[data][0], {**GRAM, **settings}, privacy, seed, spec=whole.spec)
        e = Experiment(config, self.parts)
        settings_of_run = expect(e.config.settings(), PrivateGramConfig)
        e.server = self.server = Observed(settings_of_run, e.public_info, e.streams)
        self.server.round(simulation_of(e, Simulation), 0)
        self.seed = seed
        self._everybody = whole.train.n_users
        gone = self.parts.donors.users if self.parts.donors is not None else np.empty(0, np.int64)
        self._scored = np.delete(np.arange(self._everybody), gone)[np.flatnonzero(self.parts.valid.counts)]

    def of_everybody(self, lists: Lists) -> Lists:
        """The same with a place for each person of the catalogue, NaN where one is not scored."""
        ndcg, recall = np.full((2, self._everybody), np.nan)
        ndcg[self._scored], recall[self._scored] = lists.ndcg, lists.recall
        return Lists(ndcg, recall, lists.items)

    @cached_property
    def evidence(self) -> NoisyGram:
        """What weights are made of."""
        return expect(self.server.evidence, NoisyGram)

    @cached_property
    def settings(self) -> EstimatorSettings:
        """Of the shipped weights."""
        return expect(self.server.chosen, EstimatorSettings)

    @cached_property
    def shipped(self) -> Weights:
        """The weights that devices download."""
        return self.server.tensors[WEIGHTS].numpy().astype(float)

    def clean(self) -> np.ndarray:
        """The Gram matrix without noise."""
        mean = Donations(self.parts.train).gram(self.server._relation(), diagonal=self.evidence.diagonal).mean
        return mean * self.evidence.clients

    def lists(
        self,
        weights: Weights,
        *,
        popularity: float = 1.0,
        beyond: tuple[np.ndarray, np.ndarray, Weights] | None = None,
        people: tuple[Histories, Histories] | None = None,
    ) -> Lists:
        """Rank the whole catalogue by weights as a device does.

        Args:
            weights: W.
            popularity: what popularity is multiplied by.
            beyond: items outside the head, their shares and weights, ranked among it.
            people: their known and their hidden items, by default those of the validation part.
        """
        known, hidden = people or (self.parts.train, self.parts.valid)
        tensors, found = self.server.tensors, []
        turned, listed = torch.from_numpy(weights).float().T, np.zeros(known.n_items, dtype=bool)
        for users in torch.split(torch.from_numpy(np.flatnonzero(hidden.counts)), _AT_ONCE):
            rows = UserRows(known).select(users)
            vectors, mine = centred(rows, self.server.public())
            owned = mine.counts
            least = owned.clamp(min=1).unsqueeze(1)
            head = popularity * least * tensors[SHARES] + vectors @ turned / tensors[SCALE]
            scores = over_catalogue(head, owned, tensors[HEAD], tensors[ORDER])
            if beyond is not None:
                items, shares, across = (torch.from_numpy(part) for part in beyond)
                scores[:, items] = least * shares.float() + vectors @ across.float().T
            scores[rows.owner, rows.items] = -torch.inf
            best = scores.topk(K).indices.numpy()
            chosen, counts = hidden.subset(users.numpy()), hidden.counts[users.numpy()]
            wanted = np.zeros((len(users), known.n_items), dtype=bool)
            wanted[chosen.owners, chosen.items] = True
            hits = np.take_along_axis(wanted, best, 1)
            found.append((hits @ _DISCOUNTS / _BEST[np.minimum(counts, K)], hits.sum(1) / counts))
            listed[best] = True
        ndcg, recall = (np.concatenate(values) for values in zip(*found, strict=True))
        return Lists(ndcg, recall, int(listed.sum()))


# Estimates ------------------------------------------------------------------------------------------------------------


def estimates(case: Case) -> Iterator[tuple[str, Lists]]:
    """Other weights from the same matrix."""
    evidence, settings = case.evidence, case.settings
    for below in (0.0, 0.1, 0.2):
        yield f"{below:g} of what lies below the noise", case.lists(evidence.weights(replace(settings, below=below)))
    invariant = rotation_invariant(evidence, settings)
    yield "ridge regression on the noisy matrix", case.lists(evidence.weights(replace(settings, ridge=RIDGE)))
    yield "zero diagonal", case.lists(predicting_each(evidence, settings))
    yield "single pairs", case.lists(evidence.weights(replace(settings, threshold=PAIRS)))
    yield "rotation-invariant shrinkage", case.lists(invariant)
    copies = expect(case.server.copies, ThinnedCopies)
    ours, other = (
        predicted_risk(make(copies.learning, settings), copies.judge) for make in (shipped_weights, rotation_invariant)
    )
    judged = invariant if other < MARGIN * min(ours, 0.0) else case.shipped
    yield "rotation-invariant where copies prefer it", case.lists(judged)
    yield "entries by cells of popularity", case.lists(by_cells(evidence, settings))


def shipped_weights(evidence: NoisyGram, settings: EstimatorSettings) -> Weights:
    """Those of the method."""
    return evidence.weights(settings)


def _kept(evidence: NoisyGram, settings: EstimatorSettings, make: Callable[[NoisyGram], Weights]) -> Weights:
    """Weights of the part of the head that the settings keep, with zeros around and where nothing was released."""
    kept, weights = math.ceil(settings.kept * len(evidence.gram)), np.zeros_like(evidence.gram)
    weights[:kept, :kept] = make(evidence.first(kept))
    if not evidence.diagonal:
        np.fill_diagonal(weights, 0)
    return weights


def covariance_of(evidence: NoisyGram, settings: EstimatorSettings) -> np.ndarray:
    """Sigma of the method."""
    return evidence._covariance(settings)


def posterior(covariance: np.ndarray, white: float) -> Weights:
    """S (S + c I)^-1."""
    identity = np.eye(len(covariance))
    return identity - white * solve_positive(covariance + white * identity, identity)


def predicting_each(evidence: NoisyGram, settings: EstimatorSettings) -> Weights:
    """Each entry from the others, by the estimated covariance and white noise."""
    white = 1 / len(evidence.gram)

    def make(some: NoisyGram) -> Weights:
        identity = np.eye(len(some.gram))
        precision = solve_positive(covariance_of(some, settings) + white * identity, identity)
        weights: np.ndarray = -precision / precision.diagonal()[:, None]
        np.fill_diagonal(weights, 0)
        return weights

    return _kept(evidence, settings, make)


def rotation_invariant(evidence: NoisyGram, settings: EstimatorSettings) -> Weights:
    """Every eigenvalue l replaced by what is expected along its eigenvector, l - 2 t^2 sum_j 1 / (l - l_j).

    The sum is made smooth over the distance of eigenvalues of noise alone.
    """
    white = 1 / len(evidence.gram)

    def make(some: NoisyGram) -> Weights:
        side, variance = len(some.gram), some.noise**2
        described = settings.content and some.content is not None
        explained = some._explained if described else np.zeros_like(some.gram)
        rest = some.gram - some.clients * explained
        values, vectors = eigenpairs(rest)
        apart = np.subtract.outer(values, values)
        expected = values - 2 * variance * (apart / (apart**2 + variance)).sum(1)
        bulk = max(float(np.trace(rest)), 0.0) / side
        strengths = np.maximum(expected - bulk, 0) / some.clients
        return posterior(explained + (vectors * strengths) @ vectors.T, white)

    return _kept(evidence, settings, make)


def by_cells(evidence: NoisyGram, settings: EstimatorSettings) -> Weights:
    """What the covariance leaves of the matrix, shrunk by its variance beyond noise in cells of both popularities."""
    white = 1 / len(evidence.gram)

    def make(some: NoisyGram) -> Weights:
        side, covariance = len(some.gram), covariance_of(some, settings)
        rest = some.gram - some.clients * covariance
        np.fill_diagonal(rest, 0)
        cell = np.minimum(np.arange(side) * CELLS // side, CELLS - 1)
        member = np.eye(CELLS)[cell]
        sizes = np.maximum(member.T @ (1 - np.eye(side)) @ member, 1)
        variance = np.maximum(member.T @ rest**2 @ member / sizes - some.noise**2, 0)
        share = variance / (variance + some.noise**2)
        values, vectors = eigenpairs(covariance + rest * share[np.ix_(cell, cell)] / some.clients)
        return posterior((vectors * np.maximum(values, 0)) @ vectors.T, white)

    return _kept(evidence, settings, make)


# Doubt near the edge --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Doubting(NoisyGram):
    """Evidence whose eigenpairs near the edge of the noise are believed less, or more of those below it.

    Attributes:
        doubt: power of their trust that strengths are multiplied by.
        positive: weight at the edge of what lies below it, of which x (1 + x) / 2 is taken, with x an eigenvalue over
            the edge, so nearly nothing of those below zero; None leaves what the settings say.
    """

    doubt: float = 1.0
    positive: float | None = None

    @classmethod
    def of(cls, evidence: NoisyGram, doubt: float, positive: float | None) -> "Doubting":
        """The same evidence."""
        own = {field.name: getattr(evidence, field.name) for field in fields(NoisyGram)}
        return cls(**own, doubt=doubt, positive=positive)

    def _strengths(self, settings: EstimatorSettings) -> np.ndarray:
        trust = self._seen(settings).spikes.strongest(settings.rank).trust
        return super()._strengths(settings) * trust**self.doubt

    def _weights(self, settings: EstimatorSettings) -> Weights:
        if self.positive is None or settings.ridge is not None:
            return super()._weights(settings)
        below = self._seen(settings).matrix - self._spikes_seen(settings)
        below = below / edge_of(self.noise, len(below))
        more = (below @ below + below) / 2
        np.fill_diagonal(more, 0)
        weights: Weights = super()._weights(replace(settings, below=0.0)) + self.positive * more
        return weights

    def _spikes_seen(self, settings: EstimatorSettings) -> np.ndarray:
        spikes, half = self._seen(settings).spikes, edge_of(self.noise, len(self.gram)) / 2
        seen: np.ndarray = spikes.strengths + half**2 / spikes.strengths
        all_seen: np.ndarray = (spikes.directions * seen) @ spikes.directions.T
        return all_seen


def doubting(case: Case) -> Iterator[tuple[str, Lists]]:
    """Closed forms of what a network learned of shares."""
    for name, doubt, positive in (
        ("strengths times trust", 1.0, None),
        (f"{POSITIVE:g} of the positive side below the noise", 0.0, POSITIVE),
        ("both", 1.0, POSITIVE),
    ):
        yield name, case.lists(Doubting.of(case.evidence, doubt, positive).weights(case.settings))


# Learned shrinkage ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spectrum:
    """Eigenvectors of a noisy matrix, and the risk of shares f of them: f' Q f - 2 b' f.

    Attributes:
        vectors: with positive eigenvalues, largest first.
        known: of each: what the noise and public numbers say.
        rule: shares by the spiked model.
        quadratic: Q.
        linear: b.
    """

    vectors: np.ndarray
    known: np.ndarray
    rule: np.ndarray
    quadratic: np.ndarray
    linear: np.ndarray

    @classmethod
    def of(cls, gram: np.ndarray, clean: np.ndarray, clients: float, noise: float, white: float) -> "Spectrum":
        """Of a matrix whose entries off the diagonal have noise of this deviation."""
        side = len(gram)
        values, vectors = eigenpairs(gram)
        above = np.flatnonzero(values > 0)[::-1][:200]
        values, vectors = values[above], vectors[:, above]
        edge = 2 * noise * math.sqrt(side)
        strengths = (values + np.sqrt(np.maximum(values**2 - edge**2, 0))) / 2
        trust = np.maximum(1 - (edge / (2 * strengths)) ** 2, 0) * (values > edge)
        bulk, scale = max(float(np.trace(gram)), 0.0) / side, white * clients
        believed = trust * np.maximum(strengths - bulk, 0) / scale
        apart = np.subtract.outer(values, values)
        invariant = np.maximum(values - 2 * noise**2 * side * (apart / (apart**2 + noise**2)).mean(1) - bulk, 0) / scale
        known = np.stack(
            [
                values / edge, np.log1p(strengths / scale), np.log(values / edge), np.log1p(invariant),
                np.full(len(values), math.log(edge / scale)), np.arange(len(values)) / side,
            ], 1,
        )  # fmt: skip
        return cls(vectors, known, believed / (1 + believed), *_risk(vectors, clean / clients))

    def risk(self, shares: np.ndarray) -> float:
        """By the matrix without noise."""
        return float(shares @ self.quadratic @ shares - 2 * self.linear @ shares)

    def weights(self, shares: np.ndarray) -> Weights:
        """W."""
        weights: np.ndarray = (self.vectors * shares) @ self.vectors.T
        return weights

    def best(self) -> np.ndarray:
        """Shares of the least risk."""
        return np.asarray(np.linalg.lstsq(self.quadratic, self.linear, rcond=1e-6)[0])


def _risk(vectors: np.ndarray, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q and b of the risk of `choosing`, in which weights have no diagonal."""
    turned, squares, diagonal = gram @ vectors, vectors**2, gram.diagonal()
    inner, mixed = vectors.T @ turned, (turned * vectors).T @ squares
    quadratic = inner * (vectors.T @ vectors) - mixed - mixed.T + squares.T @ (diagonal[:, None] * squares)
    return quadratic, inner.diagonal() - squares.T @ diagonal


class Shrinkage(nn.Module):
    """Shares of eigenvectors: the rule's, corrected by what a network learned."""

    def __init__(self, spectra: Sequence[Spectrum]) -> None:
        super().__init__()
        known = torch.from_numpy(np.concatenate([one.known for one in spectra])).float()
        self.mean, self.deviation = known.mean(0), known.std(0) + 1e-6
        self.layers = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, known: torch.Tensor, rule: torch.Tensor) -> torch.Tensor:
        """Shares in [0, 1]."""
        more = self.layers((known - self.mean) / self.deviation).squeeze(1)
        return torch.sigmoid(torch.logit(rule.clamp(0.01, 0.99)) + more)

    def shares(self, spectrum: Spectrum) -> np.ndarray:
        """Shares of one spectrum."""
        with torch.no_grad():
            found = self(torch.from_numpy(spectrum.known).float(), torch.from_numpy(spectrum.rule).float())
        return np.asarray(found.numpy(), dtype=float)

    @classmethod
    def learned(cls, spectra: Sequence[Spectrum], steps: int = 400) -> "Shrinkage":
        """From matrices whose truth is known, each risk counted over that of the rule."""
        torch.manual_seed(0)
        made = cls(spectra)
        optimiser = torch.optim.Adam(made.parameters(), lr=3e-3, weight_decay=1e-4)
        fields = [
            [torch.from_numpy(part).float() for part in (one.known, one.rule, one.quadratic, one.linear)]
            for one in spectra
        ]
        sizes = [max(-one.risk(one.rule), 1e-6) for one in spectra]
        for _ in range(steps):
            optimiser.zero_grad()
            loss = torch.zeros(())
            for (known, rule, quadratic, linear), size in zip(fields, sizes, strict=True):
                shares = made(known, rule)
                loss = loss + (shares @ quadratic @ shares - 2 * linear @ shares) / size
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return made


def family(data: str) -> str:
    """Catalogues of one kind are left out together."""
    return "ml" if data.startswith("ml") else data


class Learner:
    """Shrinkage for each catalogue from the matrices of the others, under simulated noise."""

    def __init__(self, wholes: Mapping[str, Split], epsilons: Sequence[float]) -> None:
        self._spectra: dict[str, list[Spectrum]] = {data: [] for data in wholes}
        self._made: dict[str, Shrinkage] = {}
        for data, whole in wholes.items():
            for epsilon in epsilons:
                case = Case(data, whole, epsilon, 0, metadata=False)
                clean, evidence = case.clean(), case.evidence
                for draw, factor in enumerate((0.6, 1.0, 1.6)):
                    noise = symmetric_noise(len(clean), draw, diagonal=evidence.diagonal) * evidence.deviation * factor
                    white, sd = 1 / len(clean), factor * evidence.noise
                    self._spectra[data].append(Spectrum.of(clean + noise, clean, evidence.clients, sd, white))

    def trials(self, data: str, case: Case) -> Iterator[tuple[str, Lists]]:
        """The rule's shares, learned ones and the best."""
        left_out = family(data)
        if left_out not in self._made:
            others = [one for name, some in self._spectra.items() if family(name) != left_out for one in some]
            self._made[left_out] = Shrinkage.learned(others)
        evidence = case.evidence
        kept = math.ceil(case.settings.kept * len(evidence.gram))
        some, clean = evidence.first(kept), case.clean()[:kept, :kept]
        seen = Spectrum.of(some.gram, clean, some.clients, some.noise, 1 / len(evidence.gram))
        for name, shares in (
            ("shares by the spiked model", seen.rule),
            ("learned from other catalogues", self._made[left_out].shares(seen)),
            ("best shares, by the matrix without noise", seen.best()),
        ):
            yield name, case.lists(_kept(evidence, case.settings, partial(_always, seen.weights(shares))))


def _always(weights: Weights, _evidence: NoisyGram) -> Weights:
    return weights


def symmetric_noise(side: int, seed: int, *, diagonal: bool) -> np.ndarray:
    """Noise as that of a packed matrix of unit deviation: 1 on the diagonal, off it 1 / sqrt(2)."""
    drawn = np.random.default_rng([seed, 3]).normal(size=(side, side))
    upper = np.triu(drawn, 1) / math.sqrt(2)
    whole: np.ndarray = upper + upper.T
    return whole + np.diag(drawn.diagonal()) if diagonal else whole


# Tail by head ---------------------------------------------------------------------------------------------------------


def tails(case: Case) -> Iterator[tuple[str, Lists]]:
    """A block of the second query for items outside the head."""
    for times, share in ((1, 0.1), (1, 0.25), (3, 0.1)):
        yield f"{times} head of items, share {share}", tail_block(case, times, share)
    yield "1 head of items, share 0.1, no noise on the block", tail_block(case, 1, 0.1, noisy=False)


def tail_block(case: Case, times: int, share: float, *, noisy: bool = True) -> Lists:
    """With v the unit vector of the own items among the next `times` B after the head, v u^T for u u^T of the matrix.

    It has norm 1, and `share` of the second query; the matrix has the rest, and so more noise. Rows are projected on
    the directions of the head that stand out, and each direction is shrunk by its variance beyond noise; weights of the
    items outside follow as for the head, C (Sigma + I / B)^-1.
    """
    evidence, settings, server = case.evidence, case.settings, case.server
    side, train, tensors = len(evidence.gram), case.parts.train, server.tensors
    order = tensors[ORDER].argsort(descending=True, stable=True).numpy()
    outside = order[~np.isin(order, tensors[HEAD].numpy())][: times * side]
    worse = 1 / math.sqrt(1 - share)
    more = symmetric_noise(side, case.seed + 100, diagonal=evidence.diagonal) * evidence.deviation
    noisier = replace(
        evidence, gram=evidence.gram + more * math.sqrt(worse**2 - 1), deviation=evidence.deviation * worse
    )
    weights = noisier.weights(settings)
    spikes = noisier._seen(settings).spikes.strongest(settings.rank)
    vectors = centred(UserRows(train).select(torch.arange(train.n_users)), server._relation())[0].numpy()
    lengths = np.linalg.norm(vectors, axis=1)
    place = np.full(train.n_items, -1)
    place[outside] = np.arange(len(outside))
    there = place[train.items] >= 0
    owners, items = train.owners[there], place[train.items[there]]
    counts = np.bincount(owners, minlength=train.n_users)
    rows = sp.csr_array((1 / np.sqrt(counts[owners]), (owners, items)), (train.n_users, len(outside)))
    block = rows.T @ (vectors / np.maximum(lengths, 1e-12)[:, None])
    deviation = evidence.deviation / math.sqrt(share) if noisy else 0.0
    drawn = np.random.default_rng([case.seed, 9]).normal(size=block.shape)
    projected = (block + deviation * drawn) @ spikes.directions
    variance = np.maximum((projected**2).mean(0) - deviation**2, 0)
    shrunk = projected * (variance / np.maximum(variance + deviation**2, 1e-12))
    # Unit vectors of both parts, brought to the ratio of their lengths.
    ratio = math.sqrt(counts.mean() / (lengths**2).mean())
    across = ratio * shrunk @ spikes.directions.T / evidence.clients
    inside = covariance_of(noisier, settings) + np.eye(side) / side
    popular = train.popularity()
    shares = popular[outside] / popular[tensors[HEAD].numpy()].sum()
    shares = np.minimum(shares, float(tensors[SHARES].min()))
    return case.lists(weights, beyond=(outside, shares, solve_positive(inside, across.T).T))


# Donors ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What is made of pooled evidence.

    Attributes:
        popularity: what popularity is multiplied by.
        weights: W.
        donors: how many times the weight of the rule donors have.
    """

    weights: Callable[[NoisyGram, EstimatorSettings], Weights] = shipped_weights
    popularity: float = 1.0
    donors: float = 1.0


def _white(times: float) -> Callable[[NoisyGram, EstimatorSettings], Weights]:
    def make(evidence: NoisyGram, settings: EstimatorSettings) -> Weights:
        white = times / len(evidence.gram)
        return _kept(evidence, settings, lambda some: posterior(covariance_of(some, settings), white))

    return make


def _changed(**changes: Any) -> Callable[[NoisyGram, EstimatorSettings], Weights]:
    return lambda evidence, settings: evidence.weights(replace(settings, **changes))


def _blended(evidence: NoisyGram, settings: EstimatorSettings) -> Weights:
    return 0.8 * evidence.weights(settings) + 0.2 * evidence.weights(replace(settings, ridge=RIDGE))


GRID: Mapping[str, Setting] = {
    "shipped": Setting(),
    "half the white noise": Setting(_white(0.5)),
    "twice the white noise": Setting(_white(2.0)),
    "a fifth from ridge regression": Setting(_blended),
    "zero diagonal": Setting(predicting_each),
    "rotation-invariant shrinkage": Setting(rotation_invariant),
    "half the head": Setting(_changed(kept=0.5)),
    "16 directions": Setting(_changed(rank=16)),
    "three quarters of popularity": Setting(popularity=0.75),
    "half as much of donors": Setting(donors=0.5),
    "one and a half times as much of donors": Setting(donors=1.5),
}
DESCRIBED: Mapping[str, Setting] = {
    "smoothing .3": Setting(_changed(smoothing=0.3)),
    "smoothing .85": Setting(_changed(smoothing=0.85)),
}


def donors(case: Case) -> Iterator[tuple[str, Lists]]:
    """Settings by donors' hidden items, and by the validation items themselves."""
    histories = expect(case.parts.donors, Donors).histories
    settings, rng = case.settings, np.random.default_rng([case.seed, 11])
    described = settings.content and case.evidence.content is not None
    grid = {**GRID, **(DESCRIBED if described else {})}
    half = rng.permutation(histories.n_users) % 2 == 0
    folds = []
    for inside in (half, ~half):
        people = histories.subset(np.flatnonzero(inside))
        hide = rng.random(len(people.items)) < 0.2
        known, hidden = (
            Histories.from_pairs(people.owners[some], people.items[some], people.n_users, people.n_items)
            for some in (~hide, hide)
        )
        folds.append((histories.subset(np.flatnonzero(~inside)), (known, hidden)))
    told: dict[str, np.ndarray] = {}
    found: dict[str, Lists] = {}
    for name, setting in grid.items():
        found[name] = _under(case, setting, histories, None)
        told[name] = np.concatenate([_under(case, setting, others, people).ndcg for others, people in folds])
        if name != "shipped":
            yield name, found[name]
    chosen, best = max(told, key=lambda n: float(told[n].mean())), max(found, key=lambda n: float(found[n].ndcg.mean()))
    gain = told[chosen] - told["shipped"]
    sure = chosen if gain.mean() > gain.std() / math.sqrt(len(gain)) else "shipped"
    yield f"chosen on donors: {chosen}", found[chosen]
    yield f"chosen on donors if by a standard error: {sure}", found[sure]
    yield f"best on the people scored: {best}", found[best]


def _under(case: Case, setting: Setting, others: Histories, people: tuple[Histories, Histories] | None) -> Lists:
    """Lists under a setting, with these donors at the weight of all."""
    private, server = expect(case.server.private, NoisyGram), case.server
    weight = min(server.decisions["weight of donors in pairs"] * setting.donors, 1.0)
    donated = Donations(others).gram(server._relation(), diagonal=private.diagonal)
    pooled, _ = pooled_pairs(private, donated, 8.0, check=False, weight=weight)
    return case.lists(setting.weights(pooled, case.settings), popularity=setting.popularity, people=people)


# Rows -----------------------------------------------------------------------------------------------------------------


def rows(
    part: str, data: str, whole: Split, epsilon: float, seeds: int, learner: Learner | None
) -> Iterator[dict[str, Any]]:
    """The shipped method and every trial beside it, from the same releases; nothing where popularity stands alone."""
    started, found, chosen = time.process_time(), dict[str, list[Lists]](), dict[str, list[str]]()
    for seed in range(seeds):
        changes = {} if learner is None else {"metadata": False}
        case = Case(data, whole, epsilon, seed, donated=part == "donors", **changes)
        if case.server.chosen is None:
            return
        trials = TRIALS[part](case) if learner is None else learner.trials(data, case)
        for label, own in [("shipped", case.lists(case.shipped)), *trials]:
            # What is chosen may differ from seed to seed; the row is that of the rule that chooses.
            name, _, which = label.partition(": ")
            found.setdefault(name, []).append(case.of_everybody(own))
            chosen.setdefault(name, []).extend([which] * bool(which))
    seconds = round(time.process_time() - started, 1)
    for name, lists in found.items():
        over = [one.ndcg - other.ndcg for one, other in zip(lists, found["shipped"], strict=True)]
        yield {
            "part": part, "data": data, "epsilon": epsilon, "trial": name, "seeds": seeds, "on": "valid",
            "ndcg": interval(_by_person([one.ndcg for one in lists])),
            "recall": interval(_by_person([one.recall for one in lists])),
            "over_shipped": [round(v, 5) for v in paired_interval(_by_person(over))],
            "over_shipped_by_seed": [round(float(np.nanmean(one)), 5) for one in over],
            "items_listed": round(float(np.mean([one.items for one in lists]))),
            "chosen": chosen[name], "cpu_s_of_all_trials": seconds,
        }  # fmt: skip


TRIALS: Mapping[str, Callable[[Case], Iterator[tuple[str, Lists]]]] = {
    "estimates": estimates,
    "doubting": doubting,
    "tail": tails,
    "donors": donors,
}


def _by_person(values: Sequence[np.ndarray]) -> np.ndarray:
    """Means over the seeds that score a person, of whom each seed says NaN if it does not."""
    scored = [one for one in np.array(values).T if not np.isnan(one).all()]
    return np.asarray(np.nanmean(np.array(scored), axis=1))


def popularity(data: str, whole: Split) -> dict[str, Any]:
    """The row of popularity without noise."""
    experiment = Experiment(
        configured(CATALOGUES[data][0], {"name": "popularity"}, plan(None, whole.train.n_users), 0, spec=whole.spec),
        whole,
    )
    experiment.server.round(simulation_of(experiment, Simulation), 0)
    found = by_user(experiment, PROTOCOL, ("ndcg", "recall"), part="valid")
    return {
        "part": "popularity", "data": data, "epsilon": None, "trial": "popularity", "seeds": 1, "on": "valid",
        **{name: interval(values) for name, values in found.items()},
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of a part."""
    data = {"nargs": "*", "default": list(DATA), "choices": list(CATALOGUES)}
    parser = harness.parser(__file__, __doc__, parts=PARTS, data=data, seeds=2)
    parser.add_argument("--epsilons", type=float, nargs="+", help="budgets (default: 1 and 8, of donors 1, 4 and 8)")
    options = harness.parse(parser, arguments)
    epsilons = options.epsilons or EPSILONS.get(options.part, (1.0, 8.0))
    record = harness.Record("gram_trials", options, [])
    wholes = {data: Catalogue(data, "valid").parts for data in options.data}
    learner = Learner(wholes, epsilons) if options.part == "learned" else None
    for data, whole in wholes.items():
        if not record.has(part="popularity", data=data):
            record.add(popularity(data, whole))
        for epsilon in epsilons:
            if not record.has(part=options.part, data=data, epsilon=epsilon):
                for row in rows(options.part, data, whole, epsilon, options.seeds, learner):
                    record.add(row)


if __name__ == "__main__":
    main()
