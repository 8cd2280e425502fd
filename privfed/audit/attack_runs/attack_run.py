"""Membership attacks on everything that a run tapped: the views of an adversary, the attacks on them, and their rows.

There are two games on every tap: training items against items never seen, and training items against held-out items
of the same user. Where training items are public (DFMR's purchases), there is one: examinations against the rest.
Where inclusion bits decided before training which interactions stay (`privfed.setup.inclusion`), a third is about
these alone; only it is ever held against epsilon. The adversary knows item popularity, as it was before any
randomised inclusion, and what the server itself sent.

Uploads are attacked where single ones were seen, the sums they went into (`privfed.audit.attack_runs.released_sums`),
the changes of the published model (`privfed.audit.attack_runs.published_models`), and the rows that clients send
where only these are seen (`privfed.audit.attack_runs.supports`). What a device shows its own user can always be
attacked, because no mechanism for uploads protects it; its rows have a tap of their own, `scores`.

Attacks on rows, biases and scores are cheap and always run. `TapConfig` enables those that repeat local training
(`privfed.audit.attack_runs.training_oracles`) or train shadow models (`privfed.audit.attack_runs.shadows`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64

from attacks import Knowledge, ScoreView, ServerView, Targets, measure
from attacks.evaluation import ALL_ITEMS, TOUCHED_ITEMS
from attacks.evaluation import AttackObservation as AttackOutput
from attacks.membership import (
    BIAS_ATTACKS,
    COLLUSION_ATTACKS,
    CORE_ATTACKS,
    INPUT_ROW_ATTACKS,
    ORACLE_ATTACKS,
    Imia,
    UploadAttack,
    observe,
    observe_scores,
)
from attacks.shadow import observe_shadows
from attacks.sums import SingletonRows, observe_sums
from privfed.audit.attack_runs.links import link_releases, two_releases
from privfed.audit.attack_runs.matched_filter import filtered
from privfed.audit.attack_runs.published_models import SEEN_BY, Published, model_changes, why_no_rows
from privfed.audit.attack_runs.released_sums import SumSeen, sums_seen
from privfed.audit.attack_runs.rows_seen import target_items
from privfed.audit.attack_runs.selection import selection_half
from privfed.audit.attack_runs.shadows import applicable as by_shadows
from privfed.audit.attack_runs.shadows import shadow_view
from privfed.audit.attack_runs.supports import attack_supports
from privfed.audit.attack_runs.training_oracles import MethodTrainingOracle, build_training_oracle
from privfed.audit.epsilon.inclusion import InclusionGame, fixed_attack
from privfed.audit.report.records import POPULARITY, AttackRow, EmpiricalRow, GuaranteeRow, LinkRow, SupportLeak, Tap
from privfed.contracts import Schema
from privfed.data import Split
from privfed.engines.checkpoint import Checkpoint
from privfed.engines.cohorts import members
from privfed.engines.costs import Costs
from privfed.engines.transcript import PROXIMAL, Observation, load_observations
from privfed.experiment import Experiment, TrainingProgress
from privfed.methods import ItemBlocks
from privfed.privacy import Guarantee, Ledger
from privfed.setup.config import ExperimentConfig
from privfed.setup.controls import SILENT

UploadTap = Literal["raw", "wire"]
UPLOAD_TAPS: tuple[UploadTap, ...] = ("raw", "wire")
AttackedTap = Literal["raw", "wire", "sum", "model", "message"]
ATTACKED_TAPS: tuple[AttackedTap, ...] = (*UPLOAD_TAPS, "sum", "model", "message")

COLLUDING = 0.2
"""Share of the audited users who collude with the adversary; they are left out of the games."""


@dataclass(frozen=True, slots=True, eq=False)
class MembershipGames:
    """The membership games that attacks on a run are scored in.

    Attributes:
        users: audited users, ascending.
        knowledge: what the adversary knew beforehand.
        games: on the users' real items.
        activity: training items of each audited user.
        inclusion_game: of randomised inclusion; None where there is none.
    """

    users: Int64[np.ndarray, "users"]
    knowledge: Knowledge
    games: tuple[Targets, ...]
    activity: Int64[np.ndarray, "users"]
    inclusion_game: InclusionGame | None = None

    @classmethod
    def from_split(
        cls, split: Split, users: Int64[np.ndarray, "users"], trained: Split | None = None
    ) -> "MembershipGames":
        """Training items against items never seen, and against held-out ones.

        Args:
            split: before randomised inclusion.
            users: audited users, ascending.
            trained: after it; None where there was none.
        """
        train, seen = (split if trained is None else trained).train.mask(users), split.seen.mask(users)
        held_out = split.valid.mask(users) | split.test.mask(users)
        games = (Targets.trained_vs_never_seen(train, seen), Targets.trained_vs_held_out(train, held_out))
        return cls(users, Knowledge(split.train.popularity().astype(np.float64)), games, train.sum(axis=1))

    @classmethod
    def from_experiment(
        cls, experiment: Experiment, guarantee: Guarantee | GuaranteeRow | None = None
    ) -> "MembershipGames":
        """The same of a run, with its inclusion bits and what is claimed of it."""
        games = cls.from_split(experiment.parts, experiment.audited().numpy(), experiment.trained)
        if experiment.inclusion is None:
            return games
        claim = None if guarantee is None else GuaranteeRow.model_validate(guarantee.model_dump())
        return replace(games, inclusion_game=InclusionGame(experiment.inclusion, claim))

    @property
    def with_colluding_users(self) -> "MembershipGames":
        """The same where some audited users collude with the adversary, and are left out of the games."""
        colluding = np.zeros(len(self.users), dtype=bool)
        colluding[:: round(1 / COLLUDING)] = True
        histories = self.games[0].members & colluding[:, None]
        knowledge = replace(self.knowledge, colluding=colluding, histories=histories)
        inclusion_game = (
            None
            if self.inclusion_game is None
            else replace(self.inclusion_game, inclusion=self.inclusion_game.inclusion.without(colluding))
        )
        remaining = tuple(game.excluding(colluding) for game in self.games)
        return replace(self, knowledge=knowledge, games=remaining, inclusion_game=inclusion_game)

    def rows(self, output: AttackOutput, tap: Tap, scopes: Sequence[str], rounds: Sequence[int]) -> list[AttackRow]:
        """Scores of every attack in every game; rows about all items have slices by popularity and activity.

        Args:
            output: of the attacks.
            tap: what they looked at.
            scopes: of items.
            rounds: looked at, counted from 1.
        """
        measure_game = partial(measure, output, self.knowledge, selection=selection_half(self.users))
        results = []
        for game in self.games:
            for scope in scopes:
                results += measure_game(game, scopes=(scope,), sliced=scope == ALL_ITEMS, activity=self.activity)
        rows = [AttackRow.from_result(result, tap=tap, rounds_seen=rounds) for result in results]
        if self.inclusion_game is not None and self.inclusion_game.playable:
            by_inclusion = [
                AttackRow.from_result(result, tap=tap, rounds_seen=rounds)
                for result in measure_game(self.inclusion_game.targets)
            ]
            rows += [self.inclusion_game.under_ceiling(row) for row in by_inclusion]
        return rows

    def measured(self, output: AttackOutput, attack: str, rows: Sequence[AttackRow]) -> list[EmpiricalRow]:
        """The epsilon that inclusion bits give for the attack fixed beforehand, if it said anything of them."""
        if self.inclusion_game is None:
            return []
        played = [row for row in rows if (row.attack, row.membership) == (attack, "randomised")]
        return [bound for row in played[:1] if (bound := self.inclusion_game.measured(output, attack, row)) is not None]


@dataclass(frozen=True, slots=True)
class AttackFindings:
    """Rows of all attacks on a run, and the epsilons measured by them.

    Attributes:
        rows: of attacks, the popularity guesser among them.
        empirical: epsilons that inclusion bits give.
        links: how well people are found again between two rounds.
    """

    rows: list[AttackRow] = field(default_factory=list)
    empirical: list[EmpiricalRow] = field(default_factory=list)
    links: list[LinkRow] = field(default_factory=list)

    def add(self, rows: Sequence[AttackRow], empirical: Sequence[EmpiricalRow] = ()) -> None:
        """Append the findings of another tap."""
        self.rows.extend(rows)
        self.empirical.extend(empirical)


def views(observations: Sequence[Observation], users: np.ndarray, blocks: ItemBlocks) -> Iterator[ServerView]:
    """One view per round of `users` (ascending); those absent from a round have zero rows."""
    for seen in observations:
        if not np.isin(seen.users.numpy(), users).all():
            raise ValueError(f"round {seen.round} was tapped for users outside the audited ones")
        positions = np.searchsorted(users, seen.users.numpy())
        output = blocks.read(seen.tensors)
        if PROXIMAL in seen.tensors:
            output["proximal"] = seen.tensors[PROXIMAL]
        arrays = {role: _spread(values.numpy(), positions, len(users)) for role, values in output.items()}
        yield ServerView(seen.round, **arrays)


def applicable(blocks: ItemBlocks) -> tuple[UploadAttack, ...]:
    """The attacks that a server which sees these blocks can run, the popularity guesser first."""
    return (
        CORE_ATTACKS
        + (INPUT_ROW_ATTACKS if blocks.input is not None else ())
        + (BIAS_ATTACKS if blocks.bias is not None else ())
    )


def oracle_attacks(oracle: MethodTrainingOracle | None) -> tuple[UploadAttack, ...]:
    """The attacks that repeat local training; IMIA knows the share of positives among touched rows from the settings.

    They tell which of the touched rows are positives and which sampled negatives, or what the model that was sent shows
    to somebody without a history. Clients that read histories sample no negatives and move every row, and their models
    show nothing without a history, so none of these attacks applies to them.
    """
    if oracle is None or not oracle.can_score:
        return ()
    sampling = oracle.registered.training.negatives(oracle.settings)
    if sampling is None:
        return tuple(a for a in ORACLE_ATTACKS if not isinstance(a, Imia))
    share = sampling.positive_share
    return tuple(replace(a, positive_share=share) if isinstance(a, Imia) else a for a in ORACLE_ATTACKS)


def attack(
    observations: Sequence[Observation], tap: Tap, split: Split, users: np.ndarray, blocks: ItemBlocks | str
) -> list[AttackRow]:
    """Every attack that always applies on the observations of one tap, in both games on natural members.

    Scored on all items, and on those whose row moved; not where the model reads histories, because there the
    softmax over the catalogue moves every row.

    Args:
        observations: of one tap, by round.
        tap: where they were made.
        split: the truth, and the popularity that the adversary knows.
        users: audited users, ascending.
        blocks: which block plays which role; a name alone is the block with one row per item.
    """
    if isinstance(blocks, str):
        blocks = ItemBlocks(blocks)
    games = MembershipGames.from_split(split, users)
    output = observe(applicable(blocks), views(observations, users, blocks), games.knowledge)
    return games.rows(output, tap, _scopes(blocks), [seen.round + 1 for seen in observations])


def attack_uploads(
    games: MembershipGames,
    observations: Sequence[Observation],
    tap: UploadTap,
    blocks: ItemBlocks,
    oracle: MethodTrainingOracle | None,
) -> AttackFindings:
    """Every attack on single uploads: those on their rows, those with help, and those that repeat training.

    Args:
        games: to put to them.
        observations: of one tap, by round.
        tap: where they were made.
        blocks: which block plays which role.
        oracle: that repeats local training; None leaves out what needs it.
    """
    with_colluding_users, rounds = games.with_colluding_users, [seen.round + 1 for seen in observations]
    attacks = (*applicable(blocks), *oracle_attacks(oracle), *COLLUSION_ATTACKS)
    knowledge = replace(with_colluding_users.knowledge, oracle=oracle)
    output = observe(attacks, views(observations, games.users, blocks), knowledge)
    alone, with_help = _parted(output)
    rows = games.rows(alone, tap, _scopes(blocks), rounds)
    rows += with_colluding_users.rows(with_help, tap, (ALL_ITEMS,), rounds)
    links = _links(games, observations, blocks) if tap == "wire" else []
    return AttackFindings(rows, games.measured(alone, fixed_attack(tap, blocks), rows), links)


def _links(games: MembershipGames, observations: Sequence[Observation], blocks: ItemBlocks) -> list[LinkRow]:
    """Uploads of two rounds told to be one person's, by what their item rows say."""
    pair = two_releases(observations, games.users)
    if pair is None:
        return []
    first, second = views(pair, games.users, blocks)
    return link_releases(first, second, games.users, applicable(blocks), games.knowledge, "wire")


def attack_sums(
    observations: Sequence[Observation], split: Split, users: np.ndarray, blocks: ItemBlocks, schema: Schema
) -> list[AttackRow]:
    """Every attack that applies on the released sums, whole and by groups of blocks, against everybody in them.

    The scope of a row about some blocks names them; its note says how many clients are in the sums.

    Args:
        observations: of tap `sum`, by round.
        split: the truth, and the popularity that the adversary knows.
        users: audited users, ascending.
        blocks: which block plays which role.
        schema: of the training step.
    """
    return attack_summed(MembershipGames.from_split(split, users), observations, blocks, schema).rows


def attack_summed(
    games: MembershipGames, observations: Sequence[Observation], blocks: ItemBlocks, schema: Schema
) -> AttackFindings:
    """The same in every game of a run; epsilon is measured on whole sums alone."""
    findings = AttackFindings()
    for seen in sums_seen(observations, games.users, blocks, schema):
        output = observe_sums(_on_sums(blocks), seen.views, games.knowledge)
        rows = games.rows(output, "sum", _scopes(blocks), seen.rounds)
        bounds = [] if seen.blocks else games.measured(output, fixed_attack("sum", blocks), rows)
        findings.add([_of_blocks(row, seen) for row in rows], bounds)
    return findings


def attack_filtered(
    experiment: Experiment, games: MembershipGames, observations: Sequence[Observation]
) -> AttackFindings:
    """The inclusion game on sums of queries that share a clip, for an adversary who knows all else."""
    output = filtered(experiment, observations, games.knowledge) if games.inclusion_game is not None else None
    return (
        AttackFindings()
        if output is None
        else AttackFindings(replace(games, games=()).rows(output, "sum", (ALL_ITEMS,), [1]))
    )


def attack_models(
    experiment: Experiment, games: MembershipGames, observations: Sequence[Observation]
) -> AttackFindings:
    """Every attack that applies on the changes between published models, against everybody who took part in them."""
    blocks, schema = experiment.item_blocks, experiment.server.schema
    published = _published(experiment)
    if blocks is None or why_no_rows(schema, published(experiment.server.public().shared), blocks) is not None:
        return AttackFindings()
    took_part = partial(members, experiment.config.privacy.sampling, experiment.streams, experiment.n_users)
    changes = model_changes(observations, games.users, blocks, schema, published, took_part)
    if not changes:
        return AttackFindings()
    output = observe_sums(_on_sums(blocks), changes, games.knowledge)
    rows = games.rows(output, "model", _scopes(blocks), [change.total.round + 1 for change in changes])
    bounds = games.measured(output, fixed_attack("model", blocks), rows)
    return AttackFindings([row if row.attack == POPULARITY else row.model_copy(update=SEEN_BY) for row in rows], bounds)


def attack_scores(experiment: Experiment, t: int) -> list[AttackRow]:
    """Rows of what can be told from what devices show; see `attack_shown`."""
    return attack_device_scores(experiment, MembershipGames.from_experiment(experiment), t).rows


def attack_device_scores(experiment: Experiment, games: MembershipGames, t: int) -> AttackFindings:
    """The score threshold on what the audited users' devices show after round `t` - 1, in every game.

    A device downloads and trains alone before it recommends, as `Experiment.recommend` does; nothing is sent. Where
    shadow models are configured, attacks that compare with them play the inclusion game.
    """
    users, shadows = experiment.audited(), experiment.config.taps.shadows
    view = ScoreView(t - 1, experiment.recommend_each(users, t).numpy())
    output = observe_scores(view, games.knowledge)
    if not experiment.registered.traits.public_target:
        rows = games.rows(output, "scores", (ALL_ITEMS,), [t])
        findings = AttackFindings(rows, games.measured(output, fixed_attack("scores", None), rows))
        if shadows and games.inclusion_game is not None:
            compared_output = observe_shadows(
                shadow_view(experiment, view.scores), games.knowledge, by_shadows(shadows)
            )
            known = {row.attack for row in rows}
            compared = replace(games, games=()).rows(compared_output, "scores", (ALL_ITEMS,), [t])
            findings.add([row for row in compared if row.attack not in known])
        return findings
    who = users.numpy()
    public = experiment.trained.train.mask(who)
    examined: Bool[np.ndarray, "users items"] = target_items(experiment).mask(who) & ~public
    if not examined.any():
        return AttackFindings()
    targets = Targets.examined_vs_rest(examined, public)
    results = measure(output, games.knowledge, targets, selection=selection_half(who))
    about = {"unit": "examination"}
    return AttackFindings(
        [AttackRow.from_result(result, tap="scores", rounds_seen=[t]).model_copy(update=about) for result in results]
    )


def attack_trained(
    experiment: Experiment, tapped: Callable[[AttackedTap], Sequence[Observation]], t: int
) -> list[AttackRow]:
    """Rows of everything that can be attacked after `t` rounds; see `look_at`."""
    return attack_taps(experiment, tapped, t).rows


def attack_taps(
    experiment: Experiment,
    tapped: Callable[[AttackedTap], Sequence[Observation]],
    t: int,
    guarantee: Guarantee | GuaranteeRow | None = None,
) -> AttackFindings:
    """Everything that can be attacked after `t` rounds: uploads of every tap, their sums, the model, what devices show.

    Args:
        experiment: trained.
        tapped: tap -> its observations by round; none where nothing was seen there.
        t: rounds trained.
        guarantee: what is claimed of the run, to stand beside the inclusion game.
    """
    games, blocks, findings = (
        MembershipGames.from_experiment(experiment, guarantee),
        experiment.item_blocks,
        AttackFindings(),
    )
    if blocks is not None:
        wire = tapped("wire")
        oracle = build_training_oracle(experiment, "wire", wire, tapped("message"))
        on_wire = attack_uploads(games, wire, "wire", blocks, oracle) if wire else AttackFindings()
        if wire and "raw" in experiment.config.taps.places and _bare(experiment):
            findings.add(*_as_raw(on_wire))
        elif raw := tapped("raw"):
            on_device = attack_uploads(games, raw, "raw", blocks, None)
            findings.add(on_device.rows, on_device.empirical)
        findings.add(on_wire.rows, on_wire.empirical)
        findings.links.extend(on_wire.links)
        summed = attack_summed(games, tapped("sum"), blocks, experiment.server.schema)
        findings.add(summed.rows, summed.empirical)
    else:
        findings.add(attack_filtered(experiment, games, tapped("sum")).rows)
    for more in (attack_models(experiment, games, tapped("model")), attack_device_scores(experiment, games, t)):
        findings.add(more.rows, more.empirical)
    return findings


@dataclass(frozen=True, slots=True)
class RunFindings:
    """What a run directory gave away.

    Attributes:
        rows: of attacks.
        support: what the rows that clients send say besides.
        empirical: epsilons that inclusion bits give.
        notices: what the run's ledger had to drop when it was resumed.
        links: how well people are found again between two rounds.
    """

    rows: list[AttackRow]
    support: SupportLeak | None
    empirical: list[EmpiricalRow] = field(default_factory=list)
    notices: tuple[str, ...] = ()
    links: list[LinkRow] = field(default_factory=list)


def attack_run(directory: Path, config: ExperimentConfig, split: Split) -> RunFindings:
    """Attack what a run directory tapped, the rows that its clients send, and what its devices show.

    Raises:
        ValueError: nothing was sent in that run, or nothing was tapped although the plan lets the server see single
            uploads.
        LedgerError: the run's ledger is not the one that its checkpoint has seen.
    """
    if config.control in SILENT:
        raise ValueError(
            f"{directory} is the control {config.control!r}, in which nothing is sent and nothing can be attacked: run "
            f"{config.method_name} without a control, in another folder, and attack that"
        )
    experiment = Experiment(config.model_copy(update={"device": "cpu"}), split)
    seen = {tap: load_observations(directory / "taps", (tap,)) for tap in ATTACKED_TAPS}
    has_rows = experiment.item_blocks is not None
    if has_rows and not any(seen[tap] for tap in UPLOAD_TAPS) and config.privacy.mechanism.release == "individual":
        raise ValueError(
            f'{directory} holds no tapped uploads: run again in another folder with taps.places = ["wire"]'
        )
    t = experiment.restore(directory)
    saved = directory / "checkpoint"
    progress = TrainingProgress.from_checkpoint(Checkpoint.load(saved), saved)
    ledger = Ledger.resume(config.privacy, experiment.n_users, directory / "ledger.jsonl", run=config.digest())
    ledger.load(progress.ledger)
    guarantee = None if experiment.inclusion is None else ledger.guarantee()
    findings = attack_taps(experiment, seen.__getitem__, t, guarantee)
    costs = Costs.from_saved(progress.simulation.costs)
    rows, support = attack_supports(experiment, t, costs)
    return RunFindings(findings.rows + rows, support, findings.empirical, ledger.notices, findings.links)


def _scopes(blocks: ItemBlocks) -> tuple[str, ...]:
    """All items, and touched ones; not where the model reads histories, because there every row moves."""
    return (ALL_ITEMS,) if blocks.input is not None else (ALL_ITEMS, TOUCHED_ITEMS)


def _on_sums(blocks: ItemBlocks) -> tuple[UploadAttack | SingletonRows, ...]:
    """What runs on sums: where rows can stay untouched, also who could have moved one."""
    return applicable(blocks) if blocks.input is not None else (*applicable(blocks), SingletonRows())


def _bare(experiment: Experiment) -> bool:
    """Whether what leaves a device is what its training gave."""
    return experiment.config.privacy.unprotected


def _as_raw(on_wire: AttackFindings) -> tuple[list[AttackRow], list[EmpiricalRow]]:
    """What the same uploads say on the device, where nothing is claimed and nobody repeats training."""
    repeating = {attack.name for attack in ORACLE_ATTACKS}
    rows = [
        row.model_copy(update={"tap": "raw", "ceiling": None}) for row in on_wire.rows if row.attack not in repeating
    ]
    unclaimed = {"tap": "raw", "accounted": float("inf"), "consistent": True}
    return rows, [row.model_copy(update=unclaimed) for row in on_wire.empirical]


def _published(experiment: Experiment) -> Published:
    """How a run's public parameters stand for blocks of its uploads: by the same names, or as its method says."""
    return partial(experiment.registered.attack_surface.published, experiment.config.settings())


def _parted(output: AttackOutput) -> tuple[AttackOutput, AttackOutput]:
    """What attacks said by themselves, and what those said that had help."""
    names = {attack.name for attack in COLLUSION_ATTACKS}
    with_colluding_users = tuple(scored for scored in output.by_attack if scored.attack.name in names)
    alone = tuple(scored for scored in output.by_attack if scored.attack.name not in names)
    return AttackOutput(alone, output.support), AttackOutput(with_colluding_users, output.support)


def _of_blocks(row: AttackRow, seen: SumSeen) -> AttackRow:
    """A row about sums: which blocks they are of, and how many clients are in them."""
    scope = f"{row.scope}, sum of {seen.blocks}" if seen.blocks else row.scope
    note = "; ".join(filter(None, (seen.note, row.note)))
    return row.model_copy(update={"scope": scope, "note": note})


def _spread(values: np.ndarray, positions: np.ndarray, users: int) -> np.ndarray:
    if len(positions) == users:
        return values.astype(np.float32, copy=False)
    out = np.zeros((users, *values.shape[1:]), np.float32)
    out[positions] = values
    return out
