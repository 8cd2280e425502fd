"""Whatever is wrong with the input, the answer is one sentence and the code 2, and nothing is left behind."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.data import catalogue
from privfed.methods import methods

DATA = ("--data", "synthetic-small")


@pytest.fixture
def run(refused: Callable, tmp_path: Path) -> Callable[..., str]:
    """Refused `privfed run fedmf` that leaves no folder behind."""

    def call(*words: object, method: str = "fedmf") -> str:
        out = tmp_path / "refused"
        told = refused("run", method, "--rounds", 2, "--out", out, *words)
        assert not out.exists()
        return str(told)

    return call


@pytest.mark.parametrize(
    ("header", "text", "told"),
    [
        ("", "", "is empty"),
        ("user,item,timestamp\n", "1,2,3\n1,x\n", "line 3 is malformed ('1,x'): expected 3 fields"),
        ("who,item,timestamp\n", "1,2,3\n", "has no column 'user'"),
        ("user,item,timestamp\n", "1,2,3\n-4,2,3\n", "line 3: the user id is negative (-4)"),
        ("user,item,timestamp\n", "1,2,3\n4,-2,3\n", "line 3: the item id is negative (-2)"),
        (
            "user,item,timestamp\n",
            "".join(f"{user},{user},1\n" for user in range(20)),
            "No user has a held-out item",
        ),
    ],
    ids=("empty", "malformed", "column", "negative user", "negative item", "nobody to evaluate"),
)
def test_data_files(run: Callable, table: Callable, header: str, text: str, told: str) -> None:
    assert told in run("--data", table(text, header=header))


def test_missing_data(run: Callable) -> None:
    assert "there is no file or folder nowhere.csv" in run("--data", "nowhere.csv")
    assert "the data set 'ml-20m' is not known" in run("--data", "ml-20m")
    assert "has no column 'who'" not in run("--data", "synthetic-small", "--user-column", "who")


def test_a_path_below_the_data_folder_is_not_missing(
    run: Callable, table: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table("1,2\n", "held.csv")
    monkeypatch.setenv(catalogue.ENVIRONMENT, str(tmp_path))
    assert "line 2 is malformed" in run("--data", "held.csv")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--privacy", "local-laplace:epsilon0=-1,clip_norm=1"), "mechanism.epsilon0 = -1 is not allowed"),
        (("--privacy", "local-laplace:epsilon0=1"), "mechanism.clip_norm is missing"),
        (
            ("--set", "privacy.mechanism.kind=local_laplace", "--set", "privacy.mechanism.epsilon0=1"),
            "privacy.mechanism.clip_norm is missing",
        ),
        (("--set", "privacy.mechanism.epsilon0=1"), "privacy.mechanism.kind is missing"),
        (("--privacy", "laplace"), "did you mean 'local-laplace'"),
        (("--set", "privacy.delta=2"), "privacy.delta = 2 is not allowed"),
        (("--set", "method.lrr=0.1"), "method.lrr is not a known key; did you mean 'lr'?"),
        (("--set", "method.lr=-1"), "method.lr = -1 is not allowed: it must be greater than 0"),
        (("--set", "protocol.candidates=smapled"), "did you mean 'sampled'"),
        (("--set", "split.kind=random"), "split.kind = 'random' is not allowed"),
        (("--set", "round=3"), "round is not a known key; did you mean 'rounds'?"),
        (("--set", "seed=x"), "seed = 'x' is not allowed"),
        (("--set", "data=3"), "data = 3 is not allowed"),
        (("--set", "columns=3"), "columns = 3 is not allowed"),
        (("--set", "nonsense"), "is not of the form key=value"),
        (("--set", "=3"), "is not of the form key=value"),
        (("--protocol", "papre"), "protocol 'papre' is not known; did you mean 'paper'?"),
        (("--rounds", "0"), "rounds = 0 is not allowed"),
        (("--device", "cuda"), "choose cpu, or cuda (cuda:1, ...) where there is one"),
        (
            ("--privacy", "clip:clip_norm=1,sampling.kind=fixed,sampling.size=500"),
            "larger than the population",
        ),
        (("--protocol", "paper", "--set", "protocol.n_sampled=500"), "n_sampled"),
        (("--config", "nowhere.toml"), "cannot read the experiment file nowhere.toml"),
        (("--set", f"rounds={'9' * 400}"), "rounds = 9999999"),
        (("--set", f"rounds={'9' * 5000}"), "rounds = '9999999"),
        (("--set", f"method.lr={'9' * 400}"), "method.lr = 9999999"),
        (("--privacy", f"clip:clip_norm={'9' * 400}"), "mechanism.clip_norm = '9999999"),
        (("--set", f"chunk={2**63}"), "chunk = 9223372036854775808 is not allowed: it must be less than or equal to"),
        (("--set", "memory_limit_gib=inf"), "memory_limit_gib = inf is not allowed: it must be a finite number"),
        (
            ("--set", f"protocol.k=[{2**63}]"),
            "protocol.k[0] = 9223372036854775808 is not allowed: it must be less than",
        ),
        (("--set", f"method.dim={2**63}"), "there is not enough memory: train fewer people at a time"),
    ],
)
def test_settings(run: Callable, words: tuple[str, ...], told: str) -> None:
    assert told in run(*DATA, *words)


def test_methods(run: Callable, refused: Callable, tmp_path: Path) -> None:
    known = f"did you mean 'fedmf'? Choose one of {', '.join(sorted(methods()))}"
    assert f"unknown method 'fedmv'; {known}" in run(*DATA, method="fedmv")
    assert "does not fit gpfedrec" in run(*DATA, "--privacy", "none:release=total", method="gpfedrec")
    assert "no method is named" in refused("run", *DATA, "--out", tmp_path / "refused")


def test_a_file_that_is_not_toml(run: Callable, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text("rounds = \n")
    assert "is not valid TOML" in run(*DATA, "--config", file)
    file.write_text(f"rounds = {'[' * 5000}{']' * 5000}\n")
    assert "is not valid TOML: it is nested too deeply" in run(*DATA, "--config", file)
    assert "rounds = '[[[[" in run(*DATA, "--set", file.read_text().replace(" ", ""))


def test_output_that_cannot_be_written(refused: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = refused("run", "fedmf", *DATA, "--rounds", 1, "--out", tmp_path / "file" / "run")
    assert "cannot make the folder" in told
    assert "choose another --out" in told
    told = refused("audit", *DATA, "--rounds", 1, "--out", tmp_path / "file")
    assert "cannot make the folder" in told


def test_output_that_holds_something(refused: Callable, trained: Path, tmp_path: Path) -> None:
    before = (trained / "metrics.jsonl").read_bytes()
    told = refused("run", "fedmf", *DATA, "--rounds", 4, "--out", trained)
    assert "holds a run already: add --resume to continue it, or choose another --out" in told
    assert (trained / "metrics.jsonl").read_bytes() == before
    (tmp_path / "letter.txt").write_text("dear")
    assert "is not empty" in refused("run", "fedmf", *DATA, "--rounds", 4, "--out", tmp_path)
    assert "holds a run already" not in refused("audit", *DATA, "--rounds", 1, "--out", tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 2, "privfed": "9.0"}, "was written in format 2 by privfed 9.0"),
        ({"format": None}, "was written in format None"),
        ({"kind": "audit"}, "holds an audit, not a run"),
        ({"data_sha256": "0" * 64}, "its digest differs"),
        ({"config": {"metod": {}}}, "metod is not a known key; did you mean 'method'?"),
        ({"extra": 1}, "extra is not a known key"),
    ],
)
def test_folders_from_elsewhere(
    refused: Callable, trained: Path, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    record = json.loads((trained / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(record | change))
    assert told in refused("attack", tmp_path)
    assert told in refused("recommend", tmp_path, "--user", 1)
    if told != "metod is not a known key; did you mean 'method'?":
        assert told in refused("run", "--out", tmp_path, "--resume")


def test_folders_that_hold_no_run(refused: Callable, tmp_path: Path) -> None:
    assert "is not there" in refused("attack", tmp_path / "nothing")
    assert "holds no run" in refused("run", "--out", tmp_path, "--resume")
    for damaged in ('{"format": 1,', "[" * 100_000):
        (tmp_path / "config.json").write_text(damaged)
        assert "is damaged" in refused("attack", tmp_path)
    (tmp_path / "file").write_text("")
    assert "is a file" in refused("attack", tmp_path / "file")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rounds", 7), "was begun with rounds = 4, not 7"),
        (("pfedrec",), "was begun with method.name = 'fedmf', not 'pfedrec'"),
        (("--privacy", "clip:clip_norm=1"), "was begun with privacy.mechanism.kind = 'unprotected'"),
        (("--set", "method.dim=8"), "was begun with method.dim = None, not 8"),
    ],
)
def test_a_run_resumes_as_it_was(refused: Callable, trained: Path, words: tuple[object, ...], told: str) -> None:
    assert told in refused("run", *words, "--out", trained, "--resume")


@pytest.mark.parametrize("method", ["fedmf", "gpfedrec"])
def test_training_that_diverged(cli: Callable, tmp_path: Path, method: str) -> None:
    answer = cli(
        "run",
        method,
        *DATA,
        "--rounds",
        3,
        "--set",
        "method.lr=1e30",
        "--out",
        tmp_path / "r",
        "--quiet",
        code=2,
    )
    assert answer.err.startswith("privfed: training diverged: round 1 gave NaN or infinity; ")
    assert "lower the learning rate" in answer.err
    assert answer.err.count("\n") == 1


def test_a_fault_of_ours_keeps_its_traceback(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from privfed.cli import listing

    def broken(names: object = None) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(listing, "documents", broken)
    answer = cli("methods", code=70)
    assert "Traceback" in answer.err
    assert "a fault of privfed itself" in answer.err
