"""Clip norms that are a rule follow from the medians that were measured."""

import json

import pytest

from benchmarks.harness import RESULTS
from benchmarks.quality.upload_norms import by_rule
from privfed.methods import methods

MEASURED = {row["method"]: row for row in json.loads((RESULTS / "upload_norms.json").read_text())["results"]}
RULED = [(name, clipped, norm) for name in methods() for clipped, norm in by_rule(name).items()]


@pytest.mark.parametrize(("name", "clipped", "norm"), RULED, ids=[f"{name}-{clipped}" for name, clipped, _ in RULED])
def test_a_clip_norm_by_rule_is_half_of_the_measured_median(name: str, clipped: str, norm: float) -> None:
    assert norm == float(f"{MEASURED[name][clipped] / 2:.2g}")


def test_rules_are_many() -> None:
    assert len(RULED) > 15
