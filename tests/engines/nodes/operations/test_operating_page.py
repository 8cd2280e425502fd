"""`docs/guides/operating.md` says what there is: metrics, reasons, commands, files."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privfed.cli import app
from privfed.engines.nodes.operations.health import HealthCode
from privfed.engines.nodes.operations.logs import FIELDS
from privfed.engines.nodes.operations.metrics import metrics_table
from privfed.engines.nodes.operations.node_monitor import NODE_METRICS
from privfed.engines.nodes.operations.server_monitor import SERVER_METRICS

PAGE = Path(__file__).resolve().parents[4] / "docs" / "guides" / "operating.md"
BEGIN, END = "<!-- metrics -->\n", "<!-- end of metrics -->\n"
METRICS = list(dict.fromkeys((*NODE_METRICS, *SERVER_METRICS)))


def test_the_table_is_the_registrys() -> None:
    """To write it anew: put `metrics_table(METRICS)` between the two marks."""
    _, _, after = PAGE.read_text().partition(BEGIN)
    table, end, _ = after.partition(END)
    assert end
    assert table == metrics_table(METRICS) + "\n"


@pytest.mark.parametrize("code", list(HealthCode))
def test_every_reason_has_a_remedy(code: HealthCode) -> None:
    assert f"| `{code}` |" in PAGE.read_text()


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in {"node", "bytes"}])
def test_fields_of_log_lines_are_explained(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text()


def test_it_is_short() -> None:
    before, _, after = PAGE.read_text().partition(BEGIN)
    prose = before + after.partition(END)[2]
    words = [word for word in prose.split() if any(letter.isalnum() for letter in word)]
    assert len(words) <= 900


def test_the_commands_for_keys_and_members_have_these_options() -> None:
    lines = re.findall(r"`privfed (federation [^`]+)`", PAGE.read_text())
    assert {line.split()[1] for line in lines} == {"keys", "rotate", "revoke", "install", "sign", "verify"}
    for line in lines:
        shown = CliRunner().invoke(app, [*line.split()[:2], "--help"], env={"COLUMNS": "200"}).output
        assert [word for word in line.split() if word.startswith("--") and word not in shown] == []
