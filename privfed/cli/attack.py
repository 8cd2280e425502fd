"""`privfed attack`: what an honest but curious server could tell from the uploads of a run."""

from dataclasses import replace
from typing import TYPE_CHECKING

from privfed.cli import early, options
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.audit.report.records import AttackRow
    from privfed.data import Split
    from privfed.experiment import Experiment, RunResult
    from privfed.setup.config import ExperimentConfig

EXAMPLE = "Example: privfed attack runs/laplace"
_INCLUSION = 0.2
"""Share of the audited users' training items that a random bit keeps or drops, as in an audit."""


def attack(
    directory: options.RunDirectory,
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Attack what RUN_DIR tapped: which items did each person train on?

    Writes attacks.json beside the run. An AUC of 0.5 is chance, 1 is certainty; a guess by popularity alone
    stands beside every attack. Where a sum hides values and not which rows a client sends, these rows are attacked.
    """
    early.refuse_absent(directory, "run")

    from privfed.cli.directory import DirectoryRecord, checkpointed
    from privfed.cli.settings import DataSource, load_data
    from privfed.experiment.folder import write_json

    screen = Screen(as_json, quiet)
    record = DirectoryRecord.read(directory, "run")
    config = record.experiment()
    source = DataSource(config.data, record.columns, chosen=True)
    early.refuse_missing(config.data)

    from privfed.audit.attack_runs.attack_run import attack_run
    from privfed.audit.report import formatting
    from privfed.audit.report.support_sentences import sentences
    from privfed.cli.show import card_line
    from privfed.cli.show_audit import attack_tables, leak_table
    from privfed.data import split

    interactions = load_data(source, screen)
    record.check_data(interactions, directory)
    checkpointed(directory)
    screen.explain(f"Data: {card_line(interactions.card)}", f"Plan: {config.privacy.name}", "")
    with screen.working("Attacking"):
        findings = attack_run(directory, config, split(interactions, config.split))
    rows, leak, synthetic = findings.rows, findings.support, interactions.card.synthetic
    if unseen := _only_sums(config):
        with screen.working("Training once more with inclusion bits"):
            on_sums = _attacks_on_sums(config, split(interactions, config.split))
        screen.explain(*unseen, _how_sums_are_attacked(on_sums), "")
        rows = [*on_sums, *rows]
    document = {
        "directory": str(directory),
        "plan": config.privacy.name,
        "synthetic": synthetic,
        "attacks": [row.model_dump(mode="json") for row in rows],
        "links": [row.model_dump(mode="json") for row in findings.links],
        "notices": list(findings.notices),
        "support": None if leak is None else leak.model_dump(mode="json"),
    }
    write_json(directory / "attacks.json", document)
    screen.result(*attack_tables(rows, synthetic=synthetic))
    screen.result(*(f"Links: {formatting.link(row)}." for row in findings.links))
    screen.result(*(f"Note: {notice}." for notice in findings.notices))
    if leak is not None:
        screen.result(leak_table(leak, rows, synthetic=synthetic))
        screen.explain(*(f"- {text}" for text in [*sentences(leak), leak.claim.sentence]))
    screen.explain(
        *dict.fromkeys(f"- {row.attack}: {row.explains}" for row in rows),
        "The adversary follows the protocol, keeps what it receives and knows how popular items are. That "
        "these attacks fail would not show that others do.",
        f"All numbers: {directory / 'attacks.json'}",
    )
    screen.document(document)


def _only_sums(config: "ExperimentConfig") -> list[str]:
    """What an adversary sees of a run of one round whose sums have no row per item; nothing for other runs."""
    registered, mechanism = config.registered(), config.privacy.mechanism
    if registered.attack_surface.has_item_rows or registered.traits.integers or not registered.traits.uploads_once:
        return []
    server = {
        "central": "The server sees every upload, which is made of one person's history and needs no attack: it is "
        "trusted, and outside the guarantee.",
        "none": "The server sees every upload, which is made of one person's history and needs no attack.",
        "local": "The server sees every upload, to which its device has added noise.",
    }.get(mechanism.trust, "Nobody sees a single upload.")
    return [
        f"Seen under this plan: {server} Others see {registered.disclosure.reads}, and what follows from them.",
    ]


def _how_sums_are_attacked(rows: "list[AttackRow]") -> str:
    """Which attacks on sums there were; the strongest needs sums that nothing has cut."""
    all_else = "an adversary who knows everything but single interactions, which random bits kept or dropped"
    if any(row.membership == "randomised" for row in rows):
        return (
            f"These sums are attacked by what they say of every item, and by {all_else}; the run itself has no such "
            f"bits, so the method was trained once more with them, under the same plan."
        )
    return (
        f"These sums are attacked by what they say of every item. That of {all_else} cannot read them, because the "
        f"method cut a query by what an earlier one had shown; their epsilon bounds it."
    )


def _attacks_on_sums(config: "ExperimentConfig", parts: "Split") -> "list[AttackRow]":
    """Attacks on the sums of another training of the same configuration, with inclusion bits."""
    from privfed.audit.attack_runs.attack_run import attack_taps
    from privfed.experiment import Experiment

    taps = config.taps.of_run(places=("sum",), rounds=(0,), inclusion=config.taps.inclusion or _INCLUSION)
    experiment = Experiment(config.model_copy(update={"taps": taps, "device": "cpu"}), parts)
    result = experiment.run()
    rows = attack_taps(experiment, result.transcript.joined, 1, result.guarantee).rows
    return [*_by_item(experiment, result), *(row for row in rows if row.tap == "sum")]


def _by_item(experiment: "Experiment", result: "RunResult") -> "list[AttackRow]":
    """What sums with one number per item say of everybody, as a guess about each audited user."""
    import numpy as np

    from attacks import ScoreView
    from attacks.evaluation import ALL_ITEMS
    from attacks.membership import observe_scores
    from privfed.audit.attack_runs.attack_run import MembershipGames
    from privfed.audit.report.records import POPULARITY

    games, n_items = MembershipGames.from_experiment(experiment), experiment.parts.train.n_items
    sums = [values for seen in result.transcript.joined("sum") for values in seen.tensors.values()]
    by_item = [values.reshape(-1).numpy() for values in sums if values.numel() == n_items]
    if not by_item:
        return []
    scores = np.broadcast_to(by_item[0].astype(np.float32), (len(games.users), n_items))
    rows = replace(games, inclusion_game=None).rows(
        observe_scores(ScoreView(0, scores), games.knowledge), "sum", (ALL_ITEMS,), [1]
    )
    about = {
        "attack": "released popularity",
        "explains": "Guesses that everybody has the items that the noisy sum says many have.",
    }
    return [row if row.attack == POPULARITY else row.model_copy(update=about) for row in rows]
