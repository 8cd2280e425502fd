"""The search of defaults: what is chosen, and that it is what is shipped."""

import json

import pytest

from benchmarks.harness import RESULTS
from benchmarks.quality import defaults
from privfed.methods import method

ROWS = json.loads((RESULTS / "defaults.json").read_text())["results"]
FOUND = {name: defaults.ratios(ROWS, name, defaults.searched(name)) for name in defaults.GRIDS}
KEPT = {
    "lightfr": "keeps the rule of DCF, whose item codes it has",
    "fedcia": "keeps its filter on the server, behind which attacks on what it sends were measured",
}
"""Methods that ship something else than the search chose, and why."""


def test_of_level_means_the_best_worst_catalogue_is_chosen() -> None:
    assert defaults.best({"even": [1.0, 1.0], "uneven": [0.5, 2.01], "poor": [0.9, 0.9]}) == "even"


@pytest.mark.parametrize(("beyond", "chosen"), [(1.01, "inside"), (1.1, "beyond")])
def test_a_setting_beyond_the_grid_has_to_be_better_than_level(beyond: float, chosen: str) -> None:
    found = {"inside": [1.0, 1.0], "beyond": [beyond, beyond]}
    assert defaults.best(found, ["beyond"]) == chosen


def test_the_row_with_more_people_counts() -> None:
    def row(method: str, users: int, ndcg: float) -> dict[str, object]:
        return {"method": method, "label": method, "data": "ub-dfmr", "users": users, "ndcg": ndcg}

    rows = [row("popularity", 10, 0.1), row("popularity", 80, 0.1), row("dcf", 80, 0.2), row("dcf", 10, 0.4)]
    assert defaults.ratios(rows, "dcf", ["ub-dfmr"]) == {"dcf": [2.0]}


@pytest.mark.parametrize("name", [name for name, found in FOUND.items() if found and name not in KEPT])
def test_what_was_chosen_is_shipped(name: str) -> None:
    chosen = defaults.best(FOUND[name], defaults.outside(name))
    settings = {defaults.label(name, one): one for one in [*defaults.GRIDS[name], *defaults.BEYOND.get(name, [])]}[
        chosen
    ]
    shipped = method(name).config().model_dump()
    # A rule of public numbers, such as "0.1 history density", is worked out from the data where none is given.
    numbers = {key: value for key, value in settings.items() if not isinstance(value, str)}
    assert {key: shipped[key] for key in numbers} == numbers
