"""The guard as a mod of Flower's ClientApp, through Flower's own messages and strategy."""

import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from privfed.guard import flower_mod
from privfed.privacy import PlanError
from tests.guard.conftest import GENEROUS, PLAN, flat, model

pytestmark = pytest.mark.usefixtures("in_a_run")


def context(**node_config):
    return Context(run_id=1, node_id=1, node_config=node_config, state=RecordDict(), run_config={})


def arrays(state):
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in state.items()})


def message(*records, kind="train", state=None, name="arrays"):
    content = {name: arrays(model(2.0) if state is None else state), "config": ConfigRecord({"lr": 0.1})}
    return Message(RecordDict(content | dict(records)), dst_node_id=1, message_type=kind)


class App:
    """A ClientApp that returns what it is told to, and counts how often data were touched."""

    def __init__(self, mod, returns=lambda received: model(5.0)):
        self.touched, self.app = 0, ClientApp(mods=[mod])

        def train(asked, context):
            self.touched += 1
            metrics = MetricRecord({"num-examples": 41, "train-loss": 0.25})
            state = returns(asked.content["arrays"])
            return Message(RecordDict({"model": arrays(state), "metrics": metrics}), reply_to=asked)

        def measure(asked, context):
            self.touched += 1
            metrics = MetricRecord({"num-examples": 41, "accuracy": 0.75})
            return Message(RecordDict({"metrics": metrics, "rows": arrays(model(9.0))}), reply_to=asked)

        self.app.train()(train)
        self.app.train("other")(train)
        self.app.evaluate()(measure)
        self.app.query()(measure)

    def __call__(self, asked, **node_config):
        return self.app(asked, context(**node_config))


def refused(reply, sentence):
    assert reply.has_error()
    assert reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION
    assert sentence in reply.error.reason


def test_a_reply_holds_the_protected_model_and_constants(tmp_path):
    app = App(flower_mod(GENEROUS, rounds=1, folder=tmp_path, constants={"train-loss": 0.0}))
    reply = app(message())
    assert set(reply.content) == {"arrays", "metrics"}
    assert dict(reply.content["metrics"]) == {"num-examples": 1, "train-loss": 0.0}
    released = {name: torch.from_numpy(array.numpy()) for name, array in reply.content["arrays"].items()}
    assert {name: values.dtype for name, values in released.items()} == dict.fromkeys(model(), torch.float32)
    assert (flat(released) - 2).norm().item() == pytest.approx(1, abs=1e-3)


def test_a_budget_is_of_all_messages_and_a_message_over_it_touches_no_data(tmp_path):
    mod = flower_mod(PLAN, rounds=3, folder=tmp_path)
    app, same = App(mod), message()
    replies = [app(same), app(same), app(message(kind="train.other")), app(same), app(message())]
    assert [reply.has_error() for reply in replies] == [False, False, False, True, True]
    assert app.touched == 3
    refused(replies[-1], "this would be upload 4 of this node")
    # A replayed message is another upload, under other noise.
    first, second = (flat({n: a.numpy() for n, a in reply.content["arrays"].items()}) for reply in replies[:2])
    assert not torch.equal(first, second)
    assert mod.guard(context()).guarantee().rounds_counted == 3


def garbage(content):
    return "arrays", ArrayRecord({"w": Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=content)})


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"state": {"bn.num_batches_tracked": np.array(3)}}, "statistic of batch norm"),
        ({"state": {"renamed": np.array(3)}}, "type torch.int64"),
        ({"state": {"w": np.full(2, np.nan, np.float32)}}, "NaN or infinity"),
        ({"state": {}}, "holds no parameters"),
        ({"records": [garbage(b"")]}, "no numpy arrays"),
        ({"records": [garbage(b"\x93NUMPY")]}, "no numpy arrays"),
        ({"records": [("more", ArrayRecord({}))]}, "hold one ArrayRecord"),
        ({"kind": "evaluate"}, "evaluate = false"),
        ({"kind": "query"}, "evaluate = false"),
    ],
)
def test_what_cannot_be_bounded_is_refused_before_data_in_one_sentence(tmp_path, asked, sentence):
    mod = flower_mod(PLAN, rounds=1, folder=tmp_path)
    app = App(mod)
    records = asked.pop("records", [])
    refused(app(message(*records, **asked)), sentence)
    assert app.touched == 0
    assert mod.guard(context()).guarantee().rounds_counted == 0


def raises(received):
    raise RuntimeError("somebody's name")


@pytest.mark.parametrize(
    "returns", [raises, lambda r: {}, lambda r: model(float("nan")), lambda r: {"other": np.ones(2)}]
)
def test_a_reply_does_not_tell_whether_training_failed(tmp_path, returns):
    sound, failing = (
        App(flower_mod(PLAN, rounds=1, folder=tmp_path / name), way)
        for name, way in (("a", lambda r: model(2.0)), ("b", returns))
    )
    replies = [app(message()) for app in (sound, failing)]
    assert [reply.has_error() for reply in replies] == [False, False]
    forms = [[(name, sorted(record), record.__class__) for name, record in reply.content.items()] for reply in replies]
    assert forms[0] == forms[1]
    assert [reply.content["arrays"]["linear.weight"].shape for reply in replies] == [(3, 2), (3, 2)]


def test_a_failing_training_sends_noise_around_zero(tmp_path):
    reply = App(flower_mod(GENEROUS, rounds=1, folder=tmp_path), raises)(message())
    released = flat({name: array.numpy() for name, array in reply.content["arrays"].items()})
    assert (released - 2).abs().max().item() < 1e-3


def test_metrics_of_evaluation_leave_where_the_owner_lets_them_and_nothing_else(tmp_path):
    mod = flower_mod(PLAN, rounds=1, folder=tmp_path, evaluate=True)
    reply = App(mod)(message(kind="evaluate"))
    assert {name: dict(record) for name, record in reply.content.items()} == {
        "metrics": {"num-examples": 41, "accuracy": 0.75}
    }
    assert any("outside epsilon (evaluate = true)" in text for text in mod.guard(context()).guarantee().statements)
    (tmp_path / "owned").mkdir()
    (tmp_path / "owned" / "node.toml").write_text('[policy]\nmechanisms = ["local_gaussian"]\nmin_own_users = 1')
    refused(App(mod)(message(kind="evaluate"), guard=str(tmp_path / "owned")), "evaluate = false")


def test_the_folder_is_the_owner_s_and_no_message_names_it(tmp_path):
    mod = flower_mod(PLAN, rounds=1, folder=tmp_path / "app")
    app = App(mod)
    assert not app(message(), guard=str(tmp_path / "owner")).has_error()
    assert (tmp_path / "owner" / "state" / "book.json").exists()
    assert not (tmp_path / "app").exists()
    # Nodes of a simulation, whose folders are told apart by partition.
    for partition in (0, 1):
        assert not app(message(), **{"partition-id": partition}).has_error()
    refused(app(message(), **{"partition-id": 1}), "upload 2 of this node")
    refused(App(flower_mod(PLAN, rounds=1))(message()), "nobody names this node's guard folder")
    refused(App(flower_mod(PLAN, rounds=1, folder="guard"))(message()), "give an absolute one")


def test_a_damaged_folder_refuses_without_naming_a_path(tmp_path):
    app = App(flower_mod(PLAN, rounds=2, folder=tmp_path))
    app(message())
    (path,) = tmp_path.glob("ledger-*.jsonl")
    path.write_text("")
    reply = app(message())
    refused(reply, "LedgerError")
    assert str(tmp_path) not in reply.error.reason
    assert app.touched == 1


def test_plans_that_rest_on_others_are_refused_where_the_app_is_written():
    with pytest.raises(PlanError, match="rounds within a range"):
        flower_mod("distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=3", rounds=1)


def legacy(mods):
    from flwr.client import NumPyClient

    class Client(NumPyClient):
        def fit(self, parameters, config):
            return [values + 3 for values in parameters], 41, {"loss": 0.5}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ClientApp(client_fn=lambda context: Client().to_client(), mods=mods)


def fit(**configs):
    from flwr.common import FitIns, ndarrays_to_parameters
    from flwr.compat.common import recorddict_compat

    content = recorddict_compat.fitins_to_recorddict(
        FitIns(ndarrays_to_parameters([np.zeros((3, 2), np.float32)]), {}), keep_input=True
    )
    content.config_records.update({name: ConfigRecord(values) for name, values in configs.items()})
    return Message(content, dst_node_id=1, message_type="train")


def test_the_older_client_is_guarded_too(tmp_path):
    from flwr.common import parameters_to_ndarrays
    from flwr.compat.common import recorddict_compat

    reply = legacy([flower_mod(GENEROUS, rounds=1, folder=tmp_path)])(fit(), context())
    answer = recorddict_compat.recorddict_to_fitres(reply.content, keep_input=True)
    assert (answer.num_examples, answer.metrics, answer.status.code.value) == (1, {}, 0)
    assert np.linalg.norm(parameters_to_ndarrays(answer.parameters)[0]) == pytest.approx(1, abs=1e-3)


def test_secure_aggregation_of_flower_carries_what_the_guard_protected_and_goes_around_it(tmp_path):
    from flwr.client.mod import secaggplus_mod
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

    settings = {
        Key.SAMPLE_NUMBER: 3, Key.SHARE_NUMBER: 3, Key.THRESHOLD: 2, Key.CLIPPING_RANGE: 8.0,
        Key.TARGET_RANGE: 2**20, Key.MOD_RANGE: 2**30, Key.MAX_WEIGHT: 1.0, Key.STAGE: Stage.SETUP,
    }  # fmt: skip
    guard = flower_mod(PLAN, rounds=1, folder=tmp_path)
    inner = legacy([secaggplus_mod, guard])(fit(**{RECORD_KEY_CONFIGS: settings}), context())
    assert Key.PUBLIC_KEY_1 in inner.content[RECORD_KEY_CONFIGS]
    assert guard.guard(context()).guarantee().rounds_counted == 0
    keys = Message(RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(settings)}), dst_node_id=1, message_type="train")
    refused(legacy([guard, secaggplus_mod])(keys, context()), "mods=[secaggplus_mod, guard]")
