"""`privfed run`: what it writes, what it prints, and how settings reach it."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.experiment.folder import FORMAT
from privfed.privacy import Guarantee
from privfed.setup.controls import SILENT

DATA = ("--data", "synthetic-small")
LAPLACE = "local-laplace:epsilon0=1,clip_norm=5"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_folder_of_a_run(trained: Path) -> None:
    record = json.loads((trained / "config.json").read_text())
    assert (record["format"], record["kind"]) == (FORMAT, "run")
    assert record["config"]["method"] == {"name": "fedmf"}
    metrics = lines(trained / "metrics.jsonl")
    assert {row["round"] for row in metrics} == {0, 1, 2, 3}
    assert {row["part"] for row in metrics} == {"valid", "test"}
    assert all(row["lo"] <= row["value"] <= row["hi"] for row in metrics)
    assert {row["metric"] for row in metrics} >= {"hr@10", "ndcg@20"}
    guarantee = Guarantee.model_validate_json((trained / "guarantee.json").read_text())
    assert math.isinf(guarantee.epsilon)
    charges = lines(trained / "ledger.jsonl")
    header, *entries = ({k: v for k, v in line.items() if k not in ("previous", "digest")} for line in charges)
    chained = {"entries": entries, "head": charges[-1]["digest"], "notices": []}
    assert json.loads((trained / "ledger.json").read_text()) == header | chained
    assert sorted(path.name for path in (trained / "taps").iterdir())
    assert not list(trained.rglob("*.partial"))


def test_json_is_all_there_is_on_standard_output(cli: Callable, tmp_path: Path) -> None:
    answer = cli("run", "fedmf", *DATA, "--rounds", 2, "--privacy", LAPLACE, "--out", tmp_path / "r", "--json")
    found = answer.document
    assert found["synthetic"] is True
    assert found["guarantee"]["epsilon"] == found["forecast"]["guarantee"]["epsilon"] == pytest.approx(2, abs=0.1)
    assert found["utility"]["test"]["metrics"][0]["name"] == "hr"
    assert found["popularity"]["n_users"] == 120
    assert Path(found["files"]["guarantee.json"]).exists()
    assert "fedmf (synthetic) 2/2: valid HR@10" in answer.err


def test_a_control_is_named_wherever_its_numbers_are(cli: Callable, tmp_path: Path) -> None:
    words = ("run", "fedmf", *DATA, "--rounds", 2, "--control", "untrained", "--out")
    out = " ".join(cli(*words, tmp_path / "r").out.split())
    assert "Control: nothing is trained" in out
    assert "Quality: fedmf (the untrained model) is worse than recommending the most popular items" in out
    assert "Traffic: about" not in out
    document = cli(*words, tmp_path / "json", "--json").document
    assert (document["control"], document["forecast"]) == ("untrained", None)
    assert {row["round"] for row in lines(tmp_path / "json" / "metrics.jsonl")} == {-1}


@pytest.mark.parametrize("control", sorted(SILENT))
def test_a_control_that_sends_nothing_claims_no_uploads(
    control: str, cli: Callable, call: Callable, tmp_path: Path
) -> None:
    """Neither the screen nor guarantee.json speaks of uploads, and nobody is sent to attack what was never sent."""
    out = " ".join(cli("run", "fedmf", *DATA, "--rounds", 1, "--control", control, "--out", tmp_path / "r").out.split())
    kept = json.loads((tmp_path / "r" / "guarantee.json").read_text())
    assert "this control sends nothing" in out
    assert "this control sends nothing" in kept["reason_if_inf"]
    for text in (out, json.dumps(kept)):
        assert "released as they are" not in text
    assert "Next: privfed run fedmf, the method that this control stands beside" in out
    attacked = call("attack", tmp_path / "r")
    assert attacked.code
    assert "in which nothing is sent and nothing can be attacked: run fedmf without a control" in attacked.err


def test_a_control_that_is_none_is_refused(call: Callable, tmp_path: Path) -> None:
    for words in (("run", "fedmf", "--control"), ("audit", "--method", "fedmf", "--controls")):
        answer = call(*words, "luck", *DATA, "--out", tmp_path / "r")
        assert answer.code
        assert "'no-communication', 'shuffled' or 'untrained'" in answer.err


@pytest.mark.parametrize("text", ["view", "=2", "view.x=2"])
def test_a_boost_without_its_form_is_refused_in_the_words_of_the_option(
    text: str, call: Callable, tmp_path: Path
) -> None:
    answer = call("run", "fedmf", *DATA, "--boost", text, "--out", tmp_path / "r")
    assert answer.code
    assert answer.err.strip() == (
        f"privfed: --boost {text!r} is not of the form behaviour=size, for example --boost view=2"
    )


def test_words_for_people(cli: Callable, tmp_path: Path) -> None:
    answer = cli("run", "fedmf", *DATA, "--rounds", 2, "--privacy", LAPLACE, "--out", tmp_path / "r")
    out = " ".join(answer.out.split())
    assert "Data: synthetic-small (synthetic): 120 users" in out
    assert "Each user's held-out items are ranked among all items" in out
    assert "Plan: local Laplace (eps0 = 1 per upload, C = 5)" in out
    assert "the worst-off user ends at epsilon = 2" in out
    assert "25.6 kB up and 25.6 kB down per client and round" in out
    assert "fedmf (synthetic)" in out
    assert "popularity (synthetic)" in out
    assert "Trusts: nobody but the person's own device" in out
    assert f"Next: privfed attack {tmp_path / 'r'}" in out
    assert "One round took" in answer.err


def test_quiet_prints_the_result_only(cli: Callable, tmp_path: Path) -> None:
    answer = cli("run", "popularity", *DATA, "--rounds", 1, "--out", tmp_path / "r", "--quiet")
    assert answer.err == ""
    assert "Data:" not in answer.out
    assert "What is guaranteed" in answer.out


def test_a_file_then_flags_then_settings(cli: Callable, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(
        'data = "synthetic-small"\nrounds = 9\nprotocol = "paper"\n'
        "[method]\nname = 'gpfedrec'\ngraph = 'null'\n"
        "[privacy.mechanism]\nkind = 'local_laplace'\nepsilon0 = 2\nclip_norm = 3\n"
        "[taps]\nplaces = []\n"
    )
    out = tmp_path / "r"
    cli(
        "run", "--config", file, "--rounds", 2, "--out", out, "--quiet",
        "--set", "privacy.mechanism.epsilon0=0.5", "--set", "privacy.delta=1e-6",
        "--set", "protocol.k=[5]", "--set", "protocol.n_sampled=20", "--set", "split.ties=later_row_is_newer",
        "--set", "method.dim=8",
    )  # fmt: skip
    config = json.loads((out / "config.json").read_text())["config"]
    assert config["rounds"] == 2
    assert config["method"] == {"name": "gpfedrec", "graph": None, "dim": 8}
    assert config["privacy"]["mechanism"]["epsilon0"] == 0.5
    assert config["privacy"]["mechanism"]["clip_norm"] == 3
    assert config["privacy"]["delta"] == 1e-6
    assert (config["protocol"]["candidates"], config["protocol"]["k"]) == ("sampled", [5])
    assert config["split"]["ties"] == "later_row_is_newer"
    assert not (out / "taps").exists() or not list((out / "taps").iterdir())


def test_paper_protocol_takes_the_ties_of_the_released_code(cli: Callable, tmp_path: Path) -> None:
    found = cli(
        "run",
        "popularity",
        *DATA,
        "--rounds",
        1,
        "--protocol",
        "paper",
        "--set",
        "protocol.n_sampled=20",
        "--out",
        tmp_path / "r",
        "--json",
    ).document
    assert found["config"]["split"]["ties"] == "earlier_row_is_newer"
    assert found["config"]["protocol"]["negatives"] == "all"
    assert "of two at the same time the earlier row" in found["split"]


def test_another_method_beside_a_table_of_one_is_refused(call: Callable, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text("[method]\nname = 'gpfedrec'\nreg = 0.1\n")
    words = ("--set", "method.name=fedmf", *DATA, "--rounds", 1, "--out", tmp_path / "r", "--json")
    answer = call("run", "--config", file, *words)
    assert answer.code == 2
    assert "the file's [method] table is of gpfedrec, and --set method.name is fedmf" in answer.err


def test_a_table_of_ones_own(cli: Callable, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    columns = ("--user-column", "who", "--item-column", "what", "--time-column", "at")
    out = tmp_path / "r"
    text = cli("run", "fedmf", "--data", own.name, *columns, "--rounds", 2, "--out", out).out
    assert "1 of 13 users have no test item and only train" in text
    assert "(synthetic)" not in text
    monkeypatch.chdir(tmp_path.parent)
    assert cli("recommend", out, "--user", "u3", "-k", 3, "--json").document["items"]
    assert cli("attack", out, "--json").document["attacks"]


def test_a_finished_run_resumes_to_itself(cli: Callable, tmp_path: Path) -> None:
    out = tmp_path / "r"
    words = ("run", "fedmf", *DATA, "--rounds", 3, "--out", out, "--json")
    first = cli(*words).document
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    again = cli("run", "--out", out, "--resume", "--json").document
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert again["utility"] == first["utility"]
    assert again["guarantee"] == first["guarantee"]
    gain = json.loads((out / "evaluation.json").read_text())["gain"]
    assert gain["lo"] <= gain["value"] <= gain["hi"]
    # What the run gains over popularity is found again without it: the checkpoint keeps it with its round.
    (out / "evaluation.json").write_text("{ damaged")
    cli("run", "--out", out, "--resume", "--quiet")
    assert (out / "evaluation.json").read_bytes() == before["evaluation.json"]


def test_processes_of_torchrun_share_the_clients(cli: Callable, tmp_path: Path) -> None:
    words = ("run", "fedmf", *DATA, "--rounds", "4", "--privacy", "secure-sum:clip_norm=1", "--out")
    launch = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "privfed")
    answer = subprocess.run(
        [*launch, *words, str(tmp_path / "two")],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("What is guaranteed") == 1
    assert "2 processes share the clients" in answer.stdout
    cli(*words, tmp_path / "one", "--set", "taps.places=[]")
    for name in ("config.json", "metrics.jsonl", "ledger.jsonl", "ledger.json", "guarantee.json"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert cli("recommend", tmp_path / "two", "--user", 3, "--json").document["items"]
