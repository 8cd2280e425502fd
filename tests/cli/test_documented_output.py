"""What `docs/cli.md` shows is what the commands print: to the letter where nothing is trained, else all but digits."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
NOT_REPEATED = ("audit ", "attack runs/unprotected", "recommend", "data list", "dossier", "federation")
"""Takes minutes, is of a run that the page does not show, names what this processor ranks first, what is here, or keys
that are different every time (`test_federation.py` and `test_dossier.py` run those commands)."""


def shown() -> list[tuple[str, str]]:
    """Commands of the page, each with what it shows of their output."""
    blocks = re.findall(r"^```\n(\$ privfed .*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    parts = [part.partition("\n") for block in blocks for part in re.split(r"^\$ privfed ", block, flags=re.MULTILINE)]
    return [(command, output) for command, _, output in parts if command]


COMMANDS = [(command, output) for command, output in shown() if not command.startswith(NOT_REPEATED)]
EXACT = [
    (command, output)
    for command, output in COMMANDS
    if command.startswith(("audit-mechanism", "budget", "forecast", "methods"))
    or "runs/typo" in command
    or "runs/unclipped" in command
]
TRAINED = [pair for pair in COMMANDS if pair not in EXACT]


def files() -> dict[str, str]:
    """Python files of the page, by the name in their first line."""
    return dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE))


def pieces(text: str) -> list[str]:
    """What stands between omissions, without spaces at the ends of lines."""
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return [piece.strip() for piece in lines.split("[...]") if piece.strip()]


def missing(output: str, printed: str, mask: Callable[[str], str] = str) -> list[str]:
    """Pieces that were not printed in this order."""
    rest, absent = mask("\n".join(line.rstrip() for line in printed.splitlines())), []
    for piece in map(mask, pieces(output)):
        _, found, after = rest.partition(piece)
        if found:
            rest = after
        else:
            absent.append(piece)
    return absent


def without_digits(text: str) -> str:
    return re.sub(r"\d", "0", text)


def to_nine_digits(text: str) -> str:
    """Processors add in another order, which shows in the last digits of a number in JSON."""
    return re.sub(r"\d+\.\d{9,}", lambda number: f"{float(number[0]):.9g}", text)


def test_the_page_shows_what_is_compared() -> None:
    assert len(EXACT) == 9
    assert [command.split()[0] for command, _ in TRAINED] == ["run", "run", "attack", "export"]


@pytest.mark.parametrize(("command", "output"), EXACT, ids=[command for command, _ in EXACT])
def test_what_needs_no_training_is_printed_to_the_letter(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files().items():
        Path(name).write_text(text, encoding="utf-8")
    answer = call(*shlex.split(command))
    assert missing(output, answer.out + answer.err, to_nine_digits) == []


def test_what_training_prints_differs_in_digits_alone(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, output in TRAINED:
        answer = cli(*shlex.split(command))
        progress = [line for line in output.splitlines() if re.match(r"\w+ \(synthetic\) \d|One round took", line)]
        rest = "\n".join("[...]" if line in progress else line for line in output.splitlines())
        assert missing(rest, answer.out, without_digits) == [], command


def test_another_word_is_noticed() -> None:
    printed = "Cohorts: each user joins secretly.\nCompared: two.\nChecks: none."
    assert missing("Cohorts: each user joins secretly.\n[...]\nChecks: none.", printed) == []
    assert missing("Cohorts: each user joins by a toss.\n[...]", printed) == ["Cohorts: each user joins by a toss."]
    assert missing("Checks: none.\n[...]\nCompared: two.", printed) == ["Compared: two."]
