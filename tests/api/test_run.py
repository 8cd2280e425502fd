"""`privfed.run` and what a `Run` does."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

import privfed
from privfed.api.attacks import NOT_ATTACKED
from privfed.api.method import named
from privfed.api.tracking import chosen
from privfed.data import catalogue
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.methods import methods
from privfed.privacy import PrivacyPlan
from privfed.setup.target_plan import delta_for

SMALL = "synthetic-small"


@pytest.fixture(scope="module")
def gram() -> privfed.Run:
    return privfed.run("private-gram", SMALL, epsilon=8)


@pytest.fixture(scope="module")
def mf() -> privfed.Run:
    return privfed.run("fedmf", SMALL, rounds=2, dim=4)


def test_noise_is_sized_for_the_epsilon(gram: privfed.Run) -> None:
    assert 7.9 < gram.guarantee.epsilon <= 8
    assert gram.guarantee.delta == delta_for(120)
    assert (gram.guarantee.trust, gram.rounds, gram.config.rounds) == ("central", 1, 1)


@pytest.mark.parametrize(
    ("method", "options", "trust"),
    [
        ("fedvae", {"trust": "distributed"}, "distributed"),
        ("fedmf", {"trust": "local"}, "local"),
        ("gpfedrec", {}, "local"),
        ("fedvae", {"privacy": "central-gaussian:clip_norm=0.5"}, "central"),
        ("fedmf", {"privacy": PrivacyPlan.named("local-laplace", epsilon0=1.0, clip_norm=1.0)}, "local"),
    ],
)
def test_every_trust_keeps_its_epsilon(method: str, options: dict[str, Any], trust: str) -> None:
    run = privfed.run(method, SMALL, epsilon=3, rounds=2, **options)
    assert 2.9 < run.guarantee.epsilon <= 3
    assert run.guarantee.trust == trust


def test_the_metrics_are_those_of_the_experiment(mf: privfed.Run) -> None:
    result = Experiment.on(mf.config, mf.data).run()
    assert mf.metrics.columns.tolist() == ["metric", "k", "value", "low", "high", "popularity"]
    assert mf.metrics["value"].tolist() == [metric.value for metric in result.test.metrics]
    assert (mf.metrics["low"] <= mf.metrics["value"]).all()
    assert (mf.metrics["value"] <= mf.metrics["high"]).all()
    best = privfed.run("popularity", SMALL)
    assert mf.metrics["popularity"].tolist() == best.metrics["value"].tolist()
    assert mf.history["round"].tolist()[0] == 1
    assert mf.config.method == {"name": "fedmf", "dim": 4}


def test_what_is_printed(gram: privfed.Run, mf: privfed.Run) -> None:
    head, quality, privacy = str(gram).splitlines()[:3]
    assert head == "private-gram on synthetic-small (120 users, 200 items), 1 round, seed 0, synthetic data"
    assert quality.startswith("NDCG@10  0.")
    assert "popularity 0." in quality
    assert quality.endswith(("above", "below"))
    assert privacy.startswith(
        "Privacy  epsilon 8.00 at delta 5.2e-03 for everything one user contributed; noise added by"
    )
    assert "no guarantee (epsilon is infinite)" in str(mf)
    page = gram._repr_html_()
    assert "<table>" in page
    assert "All metrics" in page


def test_an_attack_is_shown_once_it_was_run() -> None:
    run = privfed.run("fedmf", SMALL, rounds=2)
    assert "Attack" not in str(run)
    attacks = run.attack()
    assert attacks.columns.tolist() == [
        "attack", "seen_by", "game", "items", "rounds", "auc", "low", "high", "popularity",
    ]  # fmt: skip
    assert attacks["auc"].is_monotonic_decreasing
    assert "popularity" not in set(attacks["attack"])
    assert attacks.attrs["notices"] == []
    assert {"what one client sends", "what a device shows its own user"} <= set(attacks["seen_by"])
    assert "Attack   finds " in str(run)


def test_what_was_not_attacked_is_said() -> None:
    run = privfed.run("private-gram", SMALL, epsilon=8)
    assert run.attack().attrs["notices"] == [NOT_ATTACKED]
    assert NOT_ATTACKED in str(run)


def test_recommendations_carry_the_ids_of_the_data(gram: privfed.Run) -> None:
    one = gram.recommend(1, k=4)
    assert one.columns.tolist() == ["item", "title", "score"]
    assert one["score"].is_monotonic_decreasing
    assert one.equals(gram.recommend("1", k=4))
    assert one.equals(gram.recommend(1.0, k=4))
    trained = gram.experiment.parts.train.items_of(int(gram.data.user_ids.get_loc(1)))
    assert not set(one["item"]) & set(gram.data.item_ids[trained])
    several = gram.recommend([2, 1], k=4)
    assert several["user"].tolist() == [2] * 4 + [1] * 4
    assert several["item"].tolist()[4:] == one["item"].tolist()
    np.testing.assert_allclose(several["score"][4:], one["score"], rtol=1e-5)
    assert len(gram.recommend(1, k=10_000)) == gram.data.n_items - len(trained)


def answering() -> list[str]:
    """Methods that answer from a history."""
    shallow = ["private-gram", "dpals", "ease", "eals", "vals", "ials", "puresvd", "popularity", "fedcia", "fedrecon"]
    return [*shallow, "fedvae", "private-autoencoder", "multvae", "recvae", "centdae"]


@pytest.mark.parametrize("method", answering())
def test_somebody_new_with_a_history_gets_what_its_owner_gets(method: str) -> None:
    run = privfed.run(method, SMALL, rounds=1, protocol="honest")
    # The first user: local training draws by a device's number, and somebody new is number 0 of a run of one.
    owner = run.data.user_ids[0]
    history = run.data.item_ids[run.experiment.parts.train.items_of(0)].tolist()
    before = run.recommend(owner, k=5)
    new = run.recommend(history=history, k=5)
    assert new["item"].tolist() == before["item"].tolist()
    np.testing.assert_allclose(new["score"], before["score"], rtol=1e-4)
    assert run.recommend(owner, k=5).equals(before)


@pytest.mark.parametrize("method", sorted(set(methods()) - set(answering())))
def test_methods_that_cannot_say_why_in_one_sentence(method: str) -> None:
    public = methods()[method].traits.public_target
    run = privfed.run(
        method,
        "synthetic-funnel" if public else SMALL,
        rounds=1,
        target="buy" if public else None,
    )
    with pytest.raises(ValueError, match="so somebody new has to take part") as caught:
        run.recommend(history=[run.data.item_ids[0]])
    assert str(caught.value).startswith((method, f"the server of {method}"))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({}, "needs a user"),
        ({"user": 1, "history": [3]}, "needs a user"),
        ({"user": "nobody"}, "synthetic-small has no user 'nobody': its 120 ids run from"),
        ({"history": ["nothing"]}, "synthetic-small has no item 'nothing'"),
        ({"history": []}, "no item is given"),
        ({"user": []}, "no user is given"),
        ({"user": 1, "k": 0}, "k=0 asks for no items"),
    ],
)
def test_a_question_without_an_answer(gram: privfed.Run, ask: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gram.recommend(**ask)


def test_a_saved_run_is_the_same_to_the_bit(gram: privfed.Run, mf: privfed.Run, tmp_path: Path) -> None:
    for name, run in (("gram", gram), ("mf", mf)):
        again = privfed.load_run(run.save(tmp_path / name))
        users = run.data.user_ids.tolist()[:20]
        pd.testing.assert_frame_equal(again.recommend(users), run.recommend(users), check_exact=True)
        pd.testing.assert_frame_equal(again.metrics, run.metrics, check_exact=True)
        pd.testing.assert_frame_equal(again.attack(), run.attack(), check_exact=True)
        assert again.guarantee == run.guarantee
        assert str(again) == str(run)
    with pytest.raises(ValueError, match="is not empty: choose another folder"):
        mf.save(tmp_path / "gram")


def test_a_run_on_a_frame_is_loaded_with_the_frame(tmp_path: Path) -> None:
    world = privfed.load(SMALL)
    frame = pd.DataFrame({"user": world.user_ids[world.user], "item": world.item_ids[world.item] + 0.0})
    run = privfed.run("popularity", frame)
    folder = run.save(tmp_path / "run")
    with pytest.raises(ValueError, match="was trained on 'DataFrame', which cannot be loaded again"):
        privfed.load_run(folder)
    assert privfed.load_run(folder, frame).recommend(1).equals(run.recommend(1))
    with pytest.raises(ValueError, match="its digest differs"):
        privfed.load_run(folder, frame[:-1])


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no run: give a folder that Run\.save"):
        privfed.load_run(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        privfed.load_run(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"format": 0}))
    with pytest.raises(ValueError, match="is in format 0"):
        privfed.load_run(tmp_path)


def test_the_command_line_reads_a_saved_run(mf: privfed.Run, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from privfed.cli import app

    folder = mf.save(tmp_path / "run")
    answer = CliRunner().invoke(app, ["recommend", str(folder), "--user", "1", "-k", "3", "--json"])
    listed = [item["item"] for item in json.loads(answer.stdout)["items"]]
    assert listed == mf.recommend(1, k=3)["item"].astype(str).tolist()


def test_an_export_is_read_back(gram: privfed.Run, tmp_path: Path) -> None:
    card = gram.export(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        shared = gram.experiment.server.public().shared
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118
            name: value.tolist() for name, value in shared.items()
        }
        assert json.loads(file.metadata()["items"]) == gram.data.item_ids.astype(str).tolist()
    said = card.read_text()
    for words in ("epsilon 8.00", "The server is trusted", "must not be used for", "synthetic-small", "private-gram"):
        assert words in said
    gram.export(tmp_path / "items.csv")
    table = pd.read_csv(tmp_path / "items.csv")
    assert table["item"].tolist() == gram.data.item_ids.tolist()
    assert table["title"].notna().all()
    np.testing.assert_allclose(table["order"], gram.experiment.server.public().shared["order"].numpy())


def test_an_onnx_file_recommends_as_the_run_does(gram: privfed.Run, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    gram.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    about = session.get_modelmeta().custom_metadata_map
    ids = json.loads(about["items"])
    assert float(about["epsilon"]) == gram.guarantee.epsilon
    own = [ids[3], ids[8], ids[21]]
    histories = np.zeros((3, len(ids)), np.float32)
    histories[0, [ids.index(item) for item in own]] = 1
    scores = session.run(["scores"], {"histories": histories})[0]
    assert scores.shape == histories.shape
    scores[0, histories[0] > 0] = -np.inf
    best = [ids[number] for number in np.argsort(-scores[0], kind="stable")[:5]]
    known = gram.data.item_ids.astype(type(gram.data.item_ids[0]))
    wanted = gram.recommend(history=[item for item in known if str(item) in own], k=5)["item"].astype(str).tolist()
    assert best == wanted


def test_a_method_with_private_parameters_has_no_onnx_file(mf: privfed.Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scores a history alone, and fedmf is not written so; popularity"):
        mf.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.pt", "no known format: end the name in .safetensors or .onnx or .csv"),
        ("nowhere/model.csv", "there is no folder"),
        ("there.csv", "is there already"),
    ],
)
def test_an_export_that_cannot_be(gram: privfed.Run, tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "there.csv").write_text("precious")
    with pytest.raises(ValueError, match=said):
        gram.export(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("no-such", {}, "unknown method 'no-such'"),
        ("fedmf", {"dimm": 4}, "dimm"),
        ("fedmf", {"epsilon": 8, "trust": "nobody"}, "trust = 'nobody' is not known"),
        ("fedmf", {"trust": "central"}, "epsilon is not given: give epsilon, too"),
        ("fedmf", {"epsilon": 8, "trust": "central", "privacy": "central-gaussian"}, "both name a mechanism"),
        ("fedmf", {"epsilon": 8, "privacy": "none"}, "cannot be reached with none"),
        ("fedmf", {"privacy": "nonsense"}, "nonsense"),
        ("fedmf", {"protocol": "fair"}, "protocol='fair' is not known"),
        ("fedmf", {"rounds": 0}, "rounds"),
        ("fedmf", {"trackers": "mlflow"}, "is a text: give a list"),
        ("fedmf", {"trackers": ["tensorboard"]}, "the tracker 'tensorboard' is not known"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(method: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        privfed.run(method, SMALL, **{"rounds": 1, **options})
    assert "--" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_method_and_no_tracker() -> None:
    with pytest.raises(ValueError, match="int is no method: give a name"):
        named(int)
    with pytest.raises(ValueError, match="int is no tracker"):
        chosen(None, [3])


def test_whole_numbers_keep_no_epsilon_and_behaviours_need_a_target() -> None:
    with pytest.raises(ValueError, match="uploads whole numbers, which no noise covers"):
        privfed.run("dfmr", "synthetic-funnel", target="buy", epsilon=8)
    with pytest.raises(ValueError, match=r"mixes behaviours \(.*\): choose the one to recommend, as in target="):
        privfed.run("dfmr", "synthetic-funnel")


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    run = privfed.run("popularity", SMALL, folder=tmp_path / "here")
    assert run.folder == tmp_path / "here"
    assert privfed.load_run(tmp_path / "here").metrics.equals(run.metrics)
    with pytest.raises(ValueError, match="is not empty"):
        privfed.run("popularity", SMALL, folder=tmp_path / "here")


def test_predicted_ratings_stand_beside_their_means() -> None:
    run = privfed.run("fair", SMALL, rounds=1, task="rating", protocol=Protocol(task="rating"))
    assert run.metrics["metric"].tolist()[:3] == ["MSE", "RMSE", "MAE"]
    assert all(math.isfinite(value) for value in run.metrics["popularity"])
    assert "best of the means" in str(run)
    with pytest.raises(ValueError, match="fair predicts ratings, and a list of items has none"):
        run.recommend(history=[run.data.item_ids[0]])


class Recorder:
    """A tracker that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.heard.append((name, settings))

    def log(self, rounds: int, metrics: Mapping[str, float]) -> None:
        self.heard.append((f"round {rounds}", metrics))

    def end(self, summary: Mapping[str, float] | None) -> None:
        self.heard.append(("end", summary))


def test_trackers_and_functions_hear_every_evaluation() -> None:
    tracker, logged = Recorder(), {}
    run = privfed.run("fedmf", SMALL, rounds=2, trackers=[tracker], log=logged.__setitem__)
    assert [what for what, _ in tracker.heard] == ["fedmf on synthetic-small", "round 1", "round 2", "end"]
    assert tracker.heard[0][1]["method.name"] == "fedmf"
    assert logged[2] == tracker.heard[2][1]
    value = run.metrics.set_index(["metric", "k"]).loc[("NDCG", 10), "value"]
    assert logged[2]["test/ndcg@10"] == tracker.heard[3][1]["test/ndcg@10"] == value


def test_a_tracker_hears_that_a_run_failed() -> None:
    tracker = Recorder()

    def stop(rounds: int, metrics: Mapping[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privfed.run("fedmf", SMALL, rounds=2, trackers=[tracker], log=stop)
    assert tracker.heard[-1] == ("end", None)


@pytest.mark.skipif(
    "ml-100k" not in [d.name for d in catalogue.list()] or catalogue.find("ml-100k") is None, reason="not here"
)
def test_private_gram_beats_popularity_on_people() -> None:
    run = privfed.run("private-gram", "ml-100k", epsilon=8)
    row = run.metrics.set_index(["metric", "k"]).loc[("NDCG", 20)]
    assert row["low"] > row["popularity"]
    assert run.recommend("196", k=5)["title"].notna().all()
