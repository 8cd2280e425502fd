"""What the rows that clients send give away, measured: the probes of `attacks` on the supports of a finished run.

Where the target is public (DFMR's purchases), examinations are the targets; elsewhere training items are, and
no row is public. Posterior, counts and rebuilt codes are no ROC curves and stand in a record of their own.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Int64

from attacks import SupportView, Targets, measure
from attacks.evaluation import TOUCHED_ITEMS
from attacks.metrics import Estimate, user_mean
from attacks.supports import (
    code_recovery,
    count_recovery,
    debiased_count,
    observe_support,
    padding_probability,
    realised_posterior,
    recover_examined_count,
    support_posterior,
)
from privfed.audit.attack_runs.padding_rates import padding_rates
from privfed.audit.attack_runs.rows_seen import RowsSeen, public_items, rows_seen, target_items
from privfed.audit.attack_runs.selection import selection_half
from privfed.audit.report.records import AttackRow, CodeLeak, Interval, SupportClaimRow, SupportLeak
from privfed.engines.costs import Costs
from privfed.experiment import Experiment
from privfed.privacy.padding.full_support import FullSupport
from privfed.privacy.padding.no_padding import NoPadding

BY_SERVER = {"adversary": "server", "observable": "which rows each client's upload holds"}
"""What an attack on rows says of itself where uploads are seen as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class _Truth:
    """What the audited users keep to themselves, and what everybody may know of them."""

    private: Bool[np.ndarray, "users items"]
    public: Bool[np.ndarray, "users items"]


_IN_THE_OPEN = "Rows are sent in the open, with their values: the rows that a client sends are its history."


def attack_supports(experiment: Experiment, t: int, costs: Costs) -> tuple[list[AttackRow], SupportLeak | None]:
    """Every probe of supports that applies after `t` rounds, and of user codes.

    Args:
        experiment: trained.
        t: rounds trained.
        costs: of the training.

    Returns:
        Attack rows of the tap "support", none where nobody sees single clients' rows or nothing private is behind
        them; and what else the rows give away, None for methods with neither public histories nor rows behind a sum.
    """
    mechanism, registered = experiment.config.privacy.mechanism, experiment.registered
    rows_are_seen = mechanism.secret_sharing is not None and registered.traits.upload != "dense"
    if not registered.traits.public_target and not rows_are_seen:
        return [], None
    users = experiment.audited().numpy()
    seen = rows_seen(experiment, t)
    codes, affinity = _rebuilt(experiment, users)
    leak = SupportLeak(
        claim=_claim(experiment, seen),
        seen_by=None if seen is None else seen.by,
        private="examinations" if registered.traits.public_target else "training items",
        n_users=len(users),
        up_bytes_per_client_round=costs.up_bytes / max(costs.client_rounds, 1),
        codes=codes,
    )
    if seen is None:
        return [], leak
    public = public_items(experiment).mask(users)
    truth = _Truth(target_items(experiment).mask(users) & ~public, public)
    view = _view(experiment, seen, users, public, affinity)
    if not truth.private.any():
        return [], leak.model_copy(update=_sizes(view, truth))
    output = observe_support(view)
    rows = [
        AttackRow.from_result(result, tap="support", rounds_seen=[t])
        for targets in _games(experiment, users, truth, view)
        for result in measure(output, view.prior, targets, selection=selection_half(users))
    ]
    if seen.by == "server":
        rows = [row.model_copy(update=BY_SERVER) for row in rows]
    measured = _sizes(view, truth) | _posteriors(view, truth)
    return rows, leak.model_copy(update=measured | ({} if seen.sampled else _by_formula(seen, view, truth)))


def _claim(experiment: Experiment, seen: RowsSeen | None) -> SupportClaimRow:
    claim = experiment.config.privacy.mechanism.support_claim
    if claim is None and seen is None:
        claim = FullSupport().claim
    elif claim is None:
        claim = NoPadding().claim.model_copy(update={"sentence": _IN_THE_OPEN})
    return SupportClaimRow.model_validate(claim.model_dump())


def _rebuilt(
    experiment: Experiment, users: Int64[np.ndarray, "users"]
) -> tuple[list[CodeLeak], Float32[np.ndarray, "users items"] | None]:
    """How well user codes can be rebuilt, and how well items fit one guess; nothing for methods without codes."""
    rebuilt = experiment.registered.attack_surface.rebuilt_codes(
        experiment.config.settings(), experiment.server.public(), experiment.parts.train, users
    )
    if rebuilt is None:
        return [], None
    truth = experiment.clients.state()[rebuilt.private].numpy()[users]
    leaks = []
    for start, guess in rebuilt.guesses.items():
        found = code_recovery(guess, truth)
        intervals = {name: _interval(getattr(found, name)) for name in ("bits", "users", "majority", "gain")}
        leaks.append(CodeLeak(start=start, n_bits=found.n_bits, **intervals))
    return leaks, rebuilt.affinity


def _view(
    experiment: Experiment,
    seen: RowsSeen,
    users: Int64[np.ndarray, "users"],
    public: Bool[np.ndarray, "users items"],
    affinity: Float32[np.ndarray, "users items"] | None,
) -> SupportView:
    supporters = seen.sent.popularity() - seen.public.popularity()
    estimates = None
    if seen.padding is not None:
        unbought = seen.sent.n_users - seen.public.popularity()
        rates = padding_rates(seen.padding, seen.sent, seen.public)
        estimates = debiased_count(supporters, unbought, q=seen.padding.answer_rates[0], p=rates)
    return SupportView(
        sent=seen.sent.mask(users),
        public=public,
        supporters=supporters,
        popularity=experiment.parts.train.popularity().astype(np.float64),
        examined_estimates=estimates,
        affinity=affinity,
    )


def _games(
    experiment: Experiment, users: Int64[np.ndarray, "users"], truth: _Truth, view: SupportView
) -> Sequence[Targets]:
    """Private items against the rest of the catalogue, and against the other rows that were sent."""
    among = Targets.examined_vs_padding(truth.private, view.sent, truth.public)
    if experiment.registered.traits.public_target:
        return Targets.examined_vs_rest(truth.private, truth.public), among
    everything = Targets.trained_vs_never_seen(truth.private, experiment.parts.seen.mask(users))
    candidates = everything.candidates & view.sent
    return everything, replace(among, game="trained vs padding", candidates=candidates, scope=TOUCHED_ITEMS)


def _sizes(view: SupportView, truth: _Truth) -> dict[str, float]:
    """Mean numbers of rows sent."""
    rows = {
        "public_rows": view.sent & truth.public,
        "private_rows": view.unpurchased & truth.private,
        "padding_rows": view.unpurchased & ~truth.private,
    }
    return {name: float(mask.sum(axis=1).mean()) for name, mask in rows.items()}


def _posteriors(view: SupportView, truth: _Truth) -> dict[str, object]:
    """The share of private items among the rows at stake, as it was."""
    shares = realised_posterior(view, truth.private)
    if not np.isfinite(shares).any():
        return {}
    over_rows = (view.unpurchased & truth.private).sum() / view.unpurchased.sum()
    return {"posterior": _interval(user_mean(shares)), "posterior_over_rows": float(over_rows)}


def _by_formula(seen: RowsSeen, view: SupportView, truth: _Truth) -> dict[str, object]:
    """The same share by formula, and how many private items each user has, read off how many rows it sends."""
    purchased, examined, unbought = (mask.sum(axis=1) for mask in (truth.public, truth.private, view.unpurchased))
    q, p = (1.0, None) if seen.padding is None else seen.padding.answer_rates
    if p is not None:
        others = np.full(len(purchased), p)
        counted = debiased_count(unbought, view.n_items - purchased, q=q, p=p)
    else:
        rho = 0.0 if seen.padding is None else seen.padding.fake_items_per_row
        others = padding_probability(purchased, examined, view.n_items, rho)
        counted = np.rint(recover_examined_count(unbought, purchased, rho))
    real, fake = q * examined.sum(), others @ (view.n_items - purchased - examined)
    recovery = count_recovery(counted, examined)
    return {
        "posterior_expected": float(np.nanmean(support_posterior(purchased, examined, view.n_items, q=q, p=others))),
        "posterior_over_rows_expected": float(real / (real + fake)),
        "count_exact": _interval(recovery.exact),
        "count_error": _interval(recovery.absolute_error),
    }


def _interval(estimate: Estimate) -> Interval:
    return Interval.model_validate(asdict(estimate))
