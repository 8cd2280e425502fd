"""The report as a file: what is written is read back, and what cannot be read is refused in one sentence."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attacks import Knowledge, ServerView, Targets, run
from attacks.membership import CORE_ATTACKS
from privfed.audit.report.records import (
    AttackRow,
    AuditReport,
    GuaranteeRow,
    Interval,
    ReportError,
    RocRow,
    Run,
    config_sha256,
    read_report,
    write_report,
)
from privfed.privacy.guarantee import Guarantee


def test_what_is_written_is_read_back(report: AuditReport, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(report, path)
    assert read_report(path) == report
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_infinity_is_the_word_inf(report: AuditReport, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(report, path)
    document = json.loads(path.read_text(), parse_constant=pytest.fail)
    epsilons = {run["setting"]["slug"]: run["guarantee"]["epsilon"] for run in document["runs"]}
    assert epsilons == {"none": "inf", "published_noise": "inf", "local_laplace": 68.3}


@given(st.floats(allow_nan=True, allow_infinity=True))
@settings(max_examples=50, deadline=None)
def test_every_float_survives(value: float) -> None:
    text = Interval(value=value, lo=0.0, hi=1.0).model_dump_json()
    json.loads(text, parse_constant=pytest.fail)
    back = Interval.model_validate_json(text).value
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "damaged or cut short"),
        ('{"schema_version": 3, "runs": [', "damaged or cut short"),
        ("[]", "not an audit report"),
        ("{}", "not an audit report"),
        ('{"schema_version": true}', "not an audit report"),
        ('{"schema_version": "1"}', "not an audit report"),
        ('{"schema_version": 0}', "an older privfed"),
        ('{"schema_version": 99}', "a newer privfed"),
        ('{"schema_version": 3}', "created: field required"),
    ],
)
def test_a_file_that_is_no_report_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=said) as caught:
        read_report(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReportError, match="damaged"):
        read_report(path)


def test_the_damaged_field_is_named(report: AuditReport, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    document = json.loads(report.model_dump_json())
    document["runs"][3]["attacks"][0]["auc"]["value"] = "high"
    path.write_text(json.dumps(document))
    with pytest.raises(ReportError, match=r"runs\.3\.attacks\.0\.auc\.value"):
        read_report(path)


def test_missing_files_and_folders_are_named(report: AuditReport, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file"):
        read_report(tmp_path / "nowhere.json")
    with pytest.raises(ReportError, match="choose a folder that exists"):
        write_report(report, tmp_path / "no" / "folder" / "report.json")


def test_misspelt_fields_are_refused(report: AuditReport) -> None:
    fields = report.runs[0].model_dump() | {"epsilom": 1.0}
    with pytest.raises(ValidationError, match="epsilom"):
        Run.model_validate(fields)


def test_a_roc_curve_has_two_axes_of_one_length() -> None:
    with pytest.raises(ValidationError, match="2 false-positive and 1 true-positive"):
        RocRow(fpr=[0.0, 1.0], tpr=[1.0])


def test_the_hash_of_a_configuration_ignores_key_order_only() -> None:
    one = config_sha256({"a": 1, "b": {"c": [1, 2], "d": None}})
    assert one == config_sha256({"b": {"d": None, "c": [1, 2]}, "a": 1})
    assert one != config_sha256({"a": 1, "b": {"c": [2, 1], "d": None}})
    assert len(one) == 64


def test_a_guarantee_fits_its_row_field_by_field() -> None:
    assert set(GuaranteeRow.model_fields) == set(Guarantee.model_fields)


def test_results_of_the_attack_library_fit_their_row() -> None:
    rng = np.random.default_rng(0)
    members = rng.random((6, 40)) < 0.2
    members[:, 0], members[:, 1] = True, False
    rounds = [3, 7, 9]
    views = [ServerView(round=t, uploads=(members[:, :, None] * np.ones((1, 1, 4))).astype(np.float32)) for t in rounds]
    targets = Targets.trained_vs_never_seen(members, members)
    results = run(CORE_ATTACKS, views, Knowledge(members.sum(0).astype(np.float64)), targets, resamples=20)
    rows = {result.attack: AttackRow.from_result(result, tap="wire", rounds_seen=rounds) for result in results}
    assert rows["row support"].auc.value == 1.0
    assert rows["row support"].rounds == [9]
    assert rows["multi-round vote of row norm"].rounds == rounds
    assert AttackRow.model_validate_json(rows["popularity"].model_dump_json()) == rows["popularity"]
