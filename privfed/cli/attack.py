"""`privfed attack`: what an honest but curious server could tell from the uploads of a run."""

from privfed.cli import options
from privfed.cli.screen import Screen

EXAMPLE = "Example: privfed attack runs/laplace"


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
    from privfed.audit.attack_runs.attack_run import attack_run
    from privfed.audit.report.support_sentences import sentences
    from privfed.cli.directory import DirectoryRecord, checkpointed
    from privfed.cli.settings import DataSource, load_data
    from privfed.cli.show import attack_tables, card_line, leak_table
    from privfed.data import split
    from privfed.experiment.folder import write_json

    screen = Screen(as_json, quiet)
    record = DirectoryRecord.read(directory, "run")
    config = record.experiment()
    interactions = load_data(DataSource(config.data, record.columns, chosen=True), screen)
    record.check_data(interactions, directory)
    checkpointed(directory)
    screen.explain(f"Data: {card_line(interactions.card)}", f"Plan: {config.privacy.name}", "")
    with screen.working("Attacking"):
        findings = attack_run(directory, config, split(interactions, config.split))
    rows, leak, synthetic = findings.rows, findings.support, interactions.card.synthetic
    document = {
        "directory": str(directory),
        "plan": config.privacy.name,
        "synthetic": synthetic,
        "attacks": [row.model_dump(mode="json") for row in rows],
        "notices": list(findings.notices),
        "support": None if leak is None else leak.model_dump(mode="json"),
    }
    write_json(directory / "attacks.json", document)
    screen.result(*attack_tables(rows, synthetic=synthetic))
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
