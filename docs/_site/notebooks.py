"""Notebooks of the first two tutorials, made from their pages.

    python docs/_site/notebooks.py

A page is written once, in Markdown. Its Python becomes cells of code, all else cells of text. A test compares the
notebooks with the pages, and another runs them.
"""

import json
import re
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"
PAGES = ("audit_your_recommender", "private_recommender")


def notebook(page: str) -> str:
    """The notebook of a page, as JSON."""
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    parts = re.split(r"^```python\n(.*?)^```\n", text, flags=re.DOTALL | re.MULTILINE)
    cells = [_cell(part.strip(), number) for number, part in enumerate(parts) if part.strip()]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1) + "\n"


def _cell(text: str, number: int) -> dict[str, Any]:
    """A cell; every second part of the page is code."""
    cell: dict[str, Any] = {"id": f"part-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    if number % 2:
        return cell | {"cell_type": "code", "execution_count": None, "outputs": []}
    return cell | {"cell_type": "markdown"}


def main() -> None:
    """Write the notebooks."""
    for page in PAGES:
        (TUTORIALS / f"{page}.ipynb").write_text(notebook(page), encoding="utf-8")


if __name__ == "__main__":
    main()
