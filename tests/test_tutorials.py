"""The tutorials and the example that they name run, and their notebooks are their pages."""

import runpy
import sys
from pathlib import Path

import pytest

from docs._site.notebooks import PAGES, TUTORIALS, notebook


@pytest.mark.parametrize("page", PAGES)
def test_the_notebook_is_the_page(page: str) -> None:
    """To write them anew: `python docs/_site/notebooks.py`."""
    assert (TUTORIALS / f"{page}.ipynb").read_text(encoding="utf-8") == notebook(page)


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES)
def test_the_notebook_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("privfed.api")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    content = nbformat.reads(notebook(page), as_version=4)
    nbclient.NotebookClient(content, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.get("execution_count") for cell in content.cells if cell.cell_type == "code")


def test_the_example_of_a_product_answers_its_questions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = TUTORIALS.parents[1] / "examples" / "private_product.py"
    words = ["--data", "synthetic-small", "--donors", "--refreshes", "2", "--mu", "0.3"]
    monkeypatch.setattr(sys, "argv", [file.name, *words])
    runpy.run_path(str(file), run_name="__main__")
    printed = capsys.readouterr().out
    assert [f"{number}." in printed for number in (1, 2, 4, 5)] == [True] * 4
    assert "have no guarantee at all" in printed
    assert printed.count(", which is kept") == 1
    assert "All 2 releases of popularity" in printed
    assert printed.count("Privacy  epsilon 2.00") == 2
