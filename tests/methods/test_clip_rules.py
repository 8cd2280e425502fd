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


PRESETS = [
    (f"{name}:{key}", dict(one.upload_norms))
    for name, registered in methods().items()
    for key, one in registered.presets.items()
    if any(clip.of_median != 1 for clip in registered.clip_norms)
]


@pytest.mark.parametrize(("name", "medians"), PRESETS, ids=[name for name, _ in PRESETS])
def test_a_preset_has_the_medians_of_its_own_uploads(name: str, medians: dict[str, float]) -> None:
    assert medians == {clipped: MEASURED[name][clipped] for clipped in ("upload", "upload_l1")}


def test_rules_are_many() -> None:
    assert len(RULED) > 15
