"""The tutorials run, and their notebooks are their pages."""

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
