"""A code method from the command line: train, break off, resume, recommend, and take the codes away."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from privfed.compute.processes import Processes
from privfed.data import SplitSpec, load, split
from privfed.engines.checkpoint import Checkpoint
from privfed.experiment import Experiment
from privfed.methods.dfmr.codes import ItemCodes, pack
from privfed.setup.config import ExperimentConfig

FUNNEL = ("--data", "synthetic-funnel-small", "--set", "split.target=buy", "--set", "method.d=16")
PLAN = "shared-sum:padding.kind=fake_items,padding.rho=1"


@pytest.fixture(scope="module")
def coded(call: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 4 rounds behind shared sums; read it, do not write to it."""
    out = tmp_path_factory.mktemp("coded") / "run"
    answer = call("run", "dfmr", *FUNNEL, "--rounds", 4, "--privacy", PLAN, "--out", out, "--json")
    assert answer.code == 0, answer.err
    (out.parent / "answer.json").write_text(answer.out)
    return out


def test_a_run_says_what_it_costs_and_what_it_does_not_hide(coded: Path) -> None:
    found = json.loads((coded.parent / "answer.json").read_text())
    assert found["guarantee"]["epsilon"] == "inf"
    assert found["split"].count("the target is buy, beside it cart") == 1
    sent = found["up_bytes"] / 4 / 150
    assert found["forecast"]["up_bytes_per_client_round"] == pytest.approx(sent, rel=0.05)
    assert found["aborted_rounds"] == 0


def test_the_forecast_is_a_sentence(cli: Callable, tmp_path: Path) -> None:
    text = cli("run", "dcf", *FUNNEL, "--rounds", 1, "--privacy", PLAN, "--out", tmp_path / "r").out
    assert "Privacy: epsilon = inf, because the integer blocks field, coupling, items, pull left exactly" in text
    assert "Traffic: about " in text
    assert "the target is buy" in text
    assert "popularity fake items (rho = 1)" in text


def test_a_run_that_was_broken_off_resumes_to_the_same_codes(
    cli: Callable, call: Callable, coded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, save = tmp_path / "run", Checkpoint.save
    words = (
        "run",
        "dfmr",
        *FUNNEL,
        "--rounds",
        4,
        "--privacy",
        PLAN,
        "--set",
        "checkpoint_every=1",
        "--out",
        out,
        "-q",
    )

    def interrupted(self: Checkpoint, folder: Path, *processes: Processes) -> None:
        save(self, folder, *processes)
        if self.next_round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    assert call(*words).code == 130
    monkeypatch.undo()
    cli("run", "--out", out, "--resume", "-q")
    for half in ("server", "clients"):
        one, other = (load_file(folder / "checkpoint" / f"{half}.safetensors") for folder in (out, coded))
        assert one.keys() == other.keys()
        assert all(one[name].equal(other[name]) for name in one)


def experiment(coded: Path) -> Experiment:
    config = ExperimentConfig.model_validate(json.loads((coded / "config.json").read_text())["config"])
    parts = split(load("synthetic-funnel-small"), SplitSpec(target="buy"))
    restored = Experiment(config, parts)
    restored.restore(coded)
    return restored


def test_exported_codes_recommend_what_the_command_does(cli: Callable, coded: Path, tmp_path: Path) -> None:
    file = tmp_path / "codes.safetensors"
    found = cli("export", coded, file, "--json").document
    assert (found["items"], found["bits"], found["code_bytes"], found["rounds"]) == (200, 16, 400, 4)
    codes, trained, data = ItemCodes.load(file), experiment(coded), load("synthetic-funnel-small")
    assert codes.d == 16
    for user in (0, 7, 149):
        who = torch.tensor([user])
        mine = trained.clients.ready_codes(who, trained.server.public())
        items, scores = codes.recommend(pack(mine), 25, trained.parts.train.subset(np.array([user])))
        listed = cli("recommend", coded, "--user", data.user_ids[user], "-k", 25, "--json").document["items"]
        assert [row["item"] for row in listed] == [codes.ids[item] for item in items[0]]
        assert [row["score"] for row in listed] == scores[0].tolist()
        whole = trained.recommend(user, 4).numpy()
        places = [data.item_ids.get_loc(int(row["item"])) for row in listed]
        assert [whole[place] for place in places] == [row["score"] for row in listed]
        assert places == sorted(places, key=lambda place: (-whole[place], place))
    text = cli("export", coded, file).out
    assert "200 item codes of 16 bits after 4 rounds: 400 bytes" in text


def test_recommend_for_people(cli: Callable, refused: Callable, coded: Path) -> None:
    text = " ".join(cli("recommend", coded, "--user", 1, "-k", 3).out.split())
    assert "dfmr after 4 rounds for user 1 (synthetic)" in text
    assert "equal scores stand in the order of item ids" in text
    assert "has no user '999'" in refused("recommend", coded, "--user", 999)
    everything = cli("recommend", coded, "--user", 1, "-k", 10_000, "--json").document["items"]
    assert len(everything) == 200 - len(experiment(coded).parts.train.items_of(0))


def test_codes_replace_codes_and_nothing_else(cli: Callable, refused: Callable, coded: Path, tmp_path: Path) -> None:
    letter, codes = tmp_path / "letter.txt", tmp_path / "codes.safetensors"
    letter.write_text("dear")
    assert "holds no item codes: choose another FILE" in refused("export", coded, letter)
    assert letter.read_text() == "dear"
    assert "there is no folder" in refused("export", coded, tmp_path / "none" / "codes")
    assert "holds no item codes" in refused("export", coded, tmp_path)
    cli("export", coded, codes)
    cli("export", coded, codes)


def test_the_forecast_counts_what_vals_uploads(cli: Callable, tmp_path: Path) -> None:
    found = cli("run", "vals", *FUNNEL[:4], "--rounds", 1, "--out", tmp_path / "r", "--json").document
    assert found["forecast"]["up_bytes"] == pytest.approx(found["up_bytes"])


def test_what_is_said_around_the_numbers(cli: Callable, tmp_path: Path, table: Callable) -> None:
    rows = "".join(f"{user},{item},{item}\n" for user in range(6) for item in range(user, user + 5))
    words = ("run", "dfmr", "--data", table(rows), "--rounds", 1, "--set", "method.d=8", "--out")
    text = cli(*words, tmp_path / "r").out
    assert (
        "the data hold no examinations (views, carts, ...) to learn from, so dfmr learns from the target alone" in text
    )
    assert "Traffic as counted: " in text
    quiet = cli(*words, tmp_path / "q", "--quiet").out
    assert "Protocol: Each user's held-out items are ranked among" in quiet
    assert "Traffic" not in quiet
    assert "no examinations" not in cli("run", "dcf", *FUNNEL, "--rounds", 1, "--out", tmp_path / "d").out


def test_export_explains_itself_and_its_refusals(
    cli: Callable, refused: Callable, trained: Path, tmp_path: Path
) -> None:
    text = " ".join(cli("export", "--help").out.split())
    assert "Example: privfed export runs/dfmr codes.safetensors" in text
    assert "User codes are private and are not in it" in text
    for option in ("--json", "--quiet"):
        assert option in text
    file = tmp_path / "codes"
    assert "was trained with fedmf, which makes no codes" in refused("export", trained, file)
    assert not file.exists()
    assert "is not there" in refused("export", tmp_path / "nothing", file)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("dfmr", "--data", "synthetic-funnel-small"), "choose the one to recommend as split.target"),
        (("dfmr", *FUNNEL, "--set", 'method.examinations=["like"]'), "examinations 'like' are not in the data"),
        (("dfmr", *FUNNEL, "--set", "method.c0=1e9"), "bits and integers have 64: lower bits to"),
        (("dfmr", *FUNNEL, "--privacy", "shared-sum:bits=32"), "bits and the ring has 32"),
        (("dfmr", *FUNNEL, "--privacy", "secure-sum:clip_norm=1"), "bits and the ring has 32"),
        (("dfmr", *FUNNEL, "--privacy", "shared-sum:min_cohort=1"), "min_cohort"),
        (("dfmr", *FUNNEL, "--privacy", "shared-sum:min_cohort=151"), "none would ever be released: use at most 150"),
        (("dfmr", *FUNNEL, "--set", "method.start=server", "--set", "method.start_sweeps=0"), "start_sweeps = 0"),
        (
            ("fedvae", *FUNNEL[:4], "--privacy", "shared-sum:clip_norm=1,padding.kind=fake_items,padding.rho=1"),
            "no rows to pad",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(
    call: Callable, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    answer = call("run", *words, "--rounds", 1, "--out", tmp_path / "r")
    assert answer.code == 2
    assert sentence in answer.err
    assert answer.err.startswith("privfed: ")
    assert len(answer.err.splitlines()) == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("dfmr", "--privacy", "secure-sum:clip_norm=1"), "bits and the ring has 32"),
        (("dfmr", "--privacy", "shared-sum:min_cohort=151"), "none would ever be released"),
        (("dfmr", "--privacy", "none", "--set", 'method.examinations=["like"]'), "examinations 'like' are not"),
    ],
)
def test_an_audit_refuses_before_it_writes(
    refused: Callable, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    out = tmp_path / "audit"
    assert sentence in refused("audit", "--method", *words, *FUNNEL[:4], "--rounds", 1, "--out", out)
    assert not out.exists()


def test_a_run_without_a_checkpoint_says_how_to_go_on(refused: Callable, coded: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((coded / "config.json").read_bytes())
    for words in (("attack", tmp_path), ("recommend", tmp_path, "--user", 1), ("export", tmp_path, tmp_path / "codes")):
        assert "has no checkpoint yet: let 'privfed run" in refused(*words)
