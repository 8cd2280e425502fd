"""What the rows that clients send give away, measured: the probes of `attacks` on the supports of a finished run.

A method that uploads rows of an item table shows which rows a client sends wherever a sum over rows hides values but
not rows (`SharedSum`), and wherever uploads are seen as they are. Behind covers that send every row, behind masks over
the whole table and behind noise on every row nobody sees them, and there is nothing to attack.

Where the target is public (DFMR's purchases), examinations are what is asked about; elsewhere training items are.
Everybody counts as enrolled, so that an aggregator has the rows of the whole federation.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64

from attacks import (
    CountRecovery,
    SupportView,
    Targets,
    code_recovery,
    count_recovery,
    cover_probability,
    debiased_count,
    measure,
    observe_support,
    realised_posterior,
    recover_examined_count,
    support_posterior,
    user_mean,
)
from attacks.view import TOUCHED_ITEMS
from privfed.audit.report import AttackRow, CodeLeak, Interval, SupportClaimRow, SupportLeak
from privfed.covered import private_items
from privfed.data import Histories
from privfed.engines.simulation import Costs
from privfed.experiment import Experiment
from privfed.methods import ClientData
from privfed.privacy import EveryRow, FakeItems, OwnRows, RandomisedResponse, SharedSum
from privfed.updates import Rows

_REHEARSED_AT_ONCE = 256
_NEWTON_STEPS = 60
_ALMOST_ONE = 1 - 1e-9

Drawn = FakeItems | RandomisedResponse | None


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """Rows of every client of the federation.

    Attributes:
        sent: rows that each client sends.
        public: those of them that everybody may know.
        by: who sees them.
        cover: how cover was drawn among them; None where there is none.
        sampled: whether `sent` holds negatives, drawn anew in every round.
    """

    sent: Histories
    public: Histories
    by: Literal["aggregators", "server"]
    cover: Drawn
    sampled: bool = False

    @property
    def unbought(self) -> Int64[np.ndarray, "users"]:
        """Rows of each client that are not public."""
        return self.sent.counts - self.public.counts


@dataclass(frozen=True, slots=True, eq=False)
class _Audited:
    """The audited users' rows, as masks.

    Attributes:
        users: who, ascending.
        private: the truth: items that are nobody else's business.
        public: items that everybody may know.
        sent: rows sent; None where nobody sees them.
    """

    users: Int64[np.ndarray, "users"]
    private: Bool[np.ndarray, "users items"]
    public: Bool[np.ndarray, "users items"]
    sent: Bool[np.ndarray, "users items"] | None

    @property
    def sizes(self) -> tuple[Int64[np.ndarray, "users"], Int64[np.ndarray, "users"]]:
        """|P| and |E| of each."""
        return self.public.sum(axis=1), self.private.sum(axis=1)


def attack_supports(experiment: Experiment, t: int, costs: Costs) -> tuple[list[AttackRow], SupportLeak | None]:
    """Every probe of supports that applies after `t` rounds, and of user codes.

    Args:
        experiment: trained.
        t: rounds trained.
        costs: of the training.

    Returns:
        Attack rows of the tap "support", none where nobody sees single clients' rows or nothing private is behind
        them; and what else the rows give away, None for methods without rows behind a hidden sum or public histories.
    """
    protection, reg = experiment.config.privacy.protection, experiment.registered
    if not (reg.public_target or (isinstance(protection, SharedSum) and reg.upload != "dense")):
        return [], None
    users = experiment.audited().numpy()
    seen = _seen(experiment, t)
    private = _private(experiment)
    public = _public(experiment)
    known = public.mask(users)
    audited = _Audited(users, private.mask(users) & ~known, known, None if seen is None else seen.sent.mask(users))
    guesses, affinity = _rebuilt(experiment, users)
    leak = SupportLeak(
        claim=_claim(experiment, seen),
        seen_by=None if seen is None else seen.by,
        private="examinations" if reg.public_target else "training items",
        n_users=len(users),
        up_bytes_per_client_round=costs.up_bytes / max(costs.client_rounds, 1),
        codes=guesses,
    )
    if seen is None or audited.sent is None:
        return [], leak
    view = _view(seen, audited, affinity, experiment)
    rows = _attacked(view, audited, experiment, t) if audited.private.any() else []
    by_server = {"adversary": "server", "observable": "which rows each client's upload holds"}
    if seen.by == "server":
        rows = [row.model_copy(update=by_server) for row in rows]
    return rows, leak.model_copy(update=_measured(seen, audited, view))


def _public(experiment: Experiment) -> Histories:
    """Training items of every user where they are public, else nothing."""
    train = experiment.parts.train
    if experiment.registered.public_target:
        return train
    return Histories(np.zeros(train.n_users + 1, np.int64), np.empty(0, np.int64), train.n_items)


def _private(experiment: Experiment) -> Histories:
    data = ClientData.from_split(experiment.parts, experiment.config.protocol.negatives)
    return private_items(data, experiment.registered, experiment.config.settings())


def _seen(experiment: Experiment, t: int) -> _Seen | None:
    """The rows of every client, where anybody sees them."""
    protection, public = experiment.config.privacy.protection, _public(experiment)
    if isinstance(protection, SharedSum):
        cover = protection.cover
        if isinstance(cover, EveryRow):
            return None
        if isinstance(cover, FakeItems | RandomisedResponse) and experiment.support is not None:
            return _Seen(experiment.support, public, "aggregators", cover)
        if experiment.registered.public_target:
            return _Seen(public.union(_private(experiment)), public, "aggregators", None)
        return _Seen(_touched(experiment, t), public, "aggregators", None, sampled=True)
    if protection.release == "individual" and not protection.dense:
        return _Seen(public.union(_private(experiment)), public, "server", None)
    return None


def _touched(experiment: Experiment, t: int) -> Histories:
    """Rows that clients would send in round `t`: training items with the negatives drawn for that round."""
    owners, items = [], []
    schema = experiment.server.schema
    blocks = experiment.registered.item_blocks(schema)
    for users in torch.split(torch.arange(experiment.n_users), _REHEARSED_AT_ONCE):
        _, updates = experiment.rehearse(users, t, schema)
        experiment.clients.discard()
        for part in () if updates is None or blocks is None else updates.parts:
            if isinstance(part, Rows) and part.block == blocks.output:
                owners.append(users[part.owner].numpy())
                items.append(part.ids.numpy())
    return Histories.from_pairs(
        np.concatenate([np.empty(0, np.int64), *owners]),
        np.concatenate([np.empty(0, np.int64), *items]),
        experiment.n_users,
        experiment.parts.train.n_items,
    )


def _claim(experiment: Experiment, seen: _Seen | None) -> SupportClaimRow:
    protection = experiment.config.privacy.protection
    own = EveryRow() if seen is None else OwnRows()
    claim = protection.cover.claim if isinstance(protection, SharedSum) else own.claim
    return SupportClaimRow.model_validate(claim.model_dump())


def _rebuilt(
    experiment: Experiment, users: Int64[np.ndarray, "users"]
) -> tuple[list[CodeLeak], Float32[np.ndarray, "users items"] | None]:
    """How well user codes can be rebuilt, and how well every item fits the codes that were; nothing without codes."""
    if not experiment.registered.public_target:
        return [], None
    # Only these methods need what compiles their loops, which is slow to load.
    from privfed.methods.dfmr import DFMRServer
    from privfed.methods.dfmr.reconstruction import STARTS, rebuild_codes

    server = experiment.server
    if not isinstance(server, DFMRServer):
        return [], None
    truth = experiment.clients.state()["codes"].numpy()[users]
    guesses, leaks = {}, []
    for start in STARTS:
        guess = rebuild_codes(server.config, server.public(), experiment.parts.train, users, start)
        found = code_recovery(guess, truth)
        guesses[start] = guess
        values = {name: _interval(getattr(found, name)) for name in ("bits", "users", "majority", "gain")}
        leaks.append(CodeLeak(start=start, n_bits=found.n_bits, **values))
    affinity: Float32[np.ndarray, "users items"] = guesses["purchased items"].astype(np.float32) @ server.items.T
    return leaks, affinity


def _view(
    seen: _Seen, audited: _Audited, affinity: Float32[np.ndarray, "users items"] | None, experiment: Experiment
) -> SupportView:
    supporters = seen.sent.popularity() - seen.public.popularity()
    estimates = None
    if seen.cover is not None:
        unbought = seen.sent.n_users - seen.public.popularity()
        q = seen.cover.thresholds[0] / 2**32 if isinstance(seen.cover, RandomisedResponse) else 1.0
        estimates = debiased_count(supporters, unbought, q=q, p=cover_rates(seen.cover, seen.sent, seen.public))
    sent = audited.sent
    assert sent is not None
    return SupportView(
        sent=sent,
        public=audited.public,
        supporters=supporters,
        popularity=experiment.parts.train.popularity().astype(np.float64),
        examined_estimates=estimates,
        affinity=affinity,
    )


def cover_rates(
    cover: FakeItems | RandomisedResponse, sent: Histories, public: Histories
) -> Float64[np.ndarray, "items"]:
    """How probable it is that a client without public item i, and without i privately, sends row i: a mean over clients.

    What an aggregator can say of it: it knows how cover is drawn, how many rows everybody sends, and public items. The
    k of m fakes drawn in proportion to weights w take item i with probability 1 - exp(-w_i tau), where tau makes these
    add up to k. That is exact for equal weights and near it where no weight is a large share of all.

    Args:
        cover: how rows were drawn.
        sent: rows of every client.
        public: those of them that everybody knows.
    """
    n_items = sent.n_items
    if isinstance(cover, RandomisedResponse):
        return np.full(n_items, cover.thresholds[1] / 2**32)
    weights = np.ones(n_items)
    if cover.drawn == "popularity":
        weights = (public.popularity() + 1.0) ** cover.power
    purchased = public.counts
    examined = np.rint(recover_examined_count(sent.counts - purchased, purchased, cover.rho)).astype(np.int64)
    share = cover_probability(purchased, examined.clip(0, n_items - purchased), n_items, cover.rho)
    shares, which = np.unique(share.clip(max=_ALMOST_ONE), return_inverse=True)
    taken = _inclusion(weights, shares)
    buyers = np.bincount(public.items, weights=taken[which[public.owners], public.items], minlength=n_items)
    everybody = np.bincount(which, minlength=len(shares)) @ taken
    without = sent.n_users - public.popularity()
    rates: Float64[np.ndarray, "items"] = np.divide(
        everybody - buyers, without, out=np.zeros(n_items), where=without > 0
    )
    return rates.clip(0.0, _ALMOST_ONE)


def _inclusion(
    weights: Float64[np.ndarray, "items"], shares: Float64[np.ndarray, "sizes"]
) -> Float64[np.ndarray, "sizes items"]:
    """1 - exp(-w tau) for each size of a draw, given as the share of the catalogue that it takes.

    The sum is concave in tau and below its tangents, so Newton's steps from 0 rise to the root and never past it.
    """
    relative = weights / weights.mean()
    tau = np.zeros((len(shares), 1))
    for _ in range(_NEWTON_STEPS):
        left = np.exp(-relative * tau)
        step = (shares[:, None] - (1 - left).mean(axis=1, keepdims=True)) / (relative * left).mean(
            axis=1, keepdims=True
        )
        tau += step
        if np.all(step <= 1e-9 * (1 + tau)):
            break
    return 1 - np.exp(-relative * tau)


def _attacked(view: SupportView, audited: _Audited, experiment: Experiment, t: int) -> list[AttackRow]:
    said = observe_support(view)
    return [
        AttackRow.of(result, tap="support", rounds_seen=[t])
        for targets in _games(audited, experiment)
        for result in measure(said, view.prior, targets)
    ]


def _games(audited: _Audited, experiment: Experiment) -> Sequence[Targets]:
    """Private items against the rest of the catalogue, and against the other rows that were sent."""
    private, public, sent = audited.private, audited.public, audited.sent
    assert sent is not None
    among = Targets.examined_vs_cover(private, sent, public)
    if experiment.registered.public_target:
        return Targets.examined_vs_rest(private, public), among
    everything = Targets.trained_vs_never_seen(private, experiment.parts.seen.mask(audited.users))
    candidates = everything.candidates & sent
    return everything, replace(among, game="trained vs cover", candidates=candidates, scope=TOUCHED_ITEMS)


def _measured(seen: _Seen, audited: _Audited, view: SupportView) -> dict[str, object]:
    """Everything but attacks: what is sent, posteriors, and counts read off it."""
    purchased, examined = audited.sizes
    at_stake, n_items = view.at_stake, view.n_items
    found: dict[str, object] = {
        "public_rows": float((view.sent & audited.public).sum(axis=1).mean()),
        "private_rows": float((at_stake & audited.private).sum(axis=1).mean()),
        "cover_rows": float((at_stake & ~audited.private).sum(axis=1).mean()),
    }
    if not audited.private.any():
        return found
    shares = realised_posterior(view, audited.private)
    if np.isfinite(shares).any():
        found["posterior"] = _interval(user_mean(shares))
        found["posterior_over_rows"] = float((at_stake & audited.private).sum() / at_stake.sum())
    if seen.sampled:
        return found
    if isinstance(seen.cover, RandomisedResponse):
        q, p = (threshold / 2**32 for threshold in seen.cover.thresholds)
        others = np.full(len(purchased), p)
        counted = debiased_count(at_stake.sum(axis=1), n_items - purchased, q=q, p=p)
    else:
        q, rho = 1.0, 0.0 if seen.cover is None else seen.cover.rho
        others = cover_probability(purchased, examined, n_items, rho)
        counted = recover_examined_count(at_stake.sum(axis=1), purchased, rho)
    expected = support_posterior(purchased, examined, n_items, q=q, p=others)
    real, fake = q * examined.sum(), float(others @ (n_items - purchased - examined))
    found["posterior_expected"] = float(np.nanmean(expected))
    found["posterior_over_rows_expected"] = float(real / (real + fake))
    return found | _counts(count_recovery(counted, examined))


def _counts(recovery: CountRecovery) -> dict[str, object]:
    return {"count_exact": _interval(recovery.exact), "count_error": _interval(recovery.absolute_error)}


def _interval(estimate: object) -> Interval:
    return Interval.model_validate(asdict(estimate))  # type: ignore[call-overload]
