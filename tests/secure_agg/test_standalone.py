"""The library stands alone, and what its documentation shows runs as shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_importing_it_imports_numpy_and_cryptography_and_nothing_else_of_weight():
    program = (
        "import sys; import secure_agg, secure_agg.noise, secure_agg.masking, secure_agg.masking.simulation; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = set(run("-c", program).split())
    assert {"numpy", "cryptography", "secure_agg"} <= loaded
    assert not loaded & {"torch", "scipy", "pandas", "pydantic", "jaxtyping", "dp_accounting", "opacus"}
    assert not loaded & {"privfed", "attacks"}


def test_the_example_runs():
    printed = run("examples/secure_aggregation.py", "--clients", "24")
    assert "masked sum of 22 of 24 clients" in printed
    assert "epsilon" in printed


def test_the_twenty_lines_of_the_documentation_run():
    page = (ROOT / "docs/explanation/secure_aggregation.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert program is not None
    assert len(program[1].strip().splitlines()) <= 21
    error = float(run("-c", program[1]).split()[-1])
    assert 0 < error < 1e-6


@pytest.mark.parametrize(
    ("clients", "row"),
    [(50, "12, 7 | 12, 7 | 32, 17"), (943, "36, 19 | 46, 26 | 170, 86"), (10_000, "42, 22 | 54, 30 | 232, 117")],
)
def test_the_table_of_parameters_is_the_calculators(clients, row):
    from secure_agg import choose_parameters

    shares = ((0.05, 0.1), (0.1, 0.1), (0.2, 0.3))
    chosen = [choose_parameters(clients, corrupt=c, dropout=d, complete_graph_max_clients=0) for c, d in shares]
    assert " | ".join(f"{one.neighbours}, {one.threshold}" for one in chosen) == row
    assert f"| {clients:,} | {row} |" in (ROOT / "docs/explanation/secure_aggregation.md").read_text(encoding="utf-8")
