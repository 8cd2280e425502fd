"""The guard as a filter of NVFlare's two chains, applied by NVFlare itself; skipped where that is not installed."""

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install nvflare==2.9.0")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.task_utils import apply_filters, get_filters
from nvflare.private.fed_json_config import FedJsonConfigurator, FilterChain
from nvflare.private.privacy_manager import Scope

from privfed.engines.nodes.errors import NodeRefused, PolicyRefused
from privfed.guard import nvflare_filter
from privfed.privacy import PlanError
from tests.guard.conftest import GENEROUS, PLAN


def weights(value, kind=DataKind.WEIGHTS, **meta):
    data = {"w": np.full((2, 2), value, np.float32), "b": np.full(2, value, np.float32)}
    return DXO(kind, data, meta).to_shareable()


class Site:
    """A client whose filters are its own: one object for each chain, as its `privacy.json` would make them."""

    def __init__(self, folder, plan=PLAN, *, chains=(0, 1), **settings):
        self.scope, self.touched = Scope(), 0
        self.scope.set_name("site")
        made = [nvflare_filter(folder, plan, **{"rounds": 2, **settings}) for _ in range(2)]
        if 0 in chains:
            self.scope.add_task_data_filter(made[0], FilterKey.IN)
        if 1 in chains:
            self.scope.add_task_result_filter(made[1], FilterKey.OUT)

    def __call__(self, data, execute, task="train"):
        context = FLContext()
        context.set_prop(FLContextKey.TASK_NAME, task, private=True, sticky=False)
        context.set_prop(FLContextKey.SCOPE_OBJECT, self.scope, private=True, sticky=False)
        data = apply_filters(Scope.TASK_DATA_FILTERS_NAME, data, context, {}, task, FilterKey.IN)
        self.touched += 1
        return apply_filters(Scope.TASK_RESULT_FILTERS_NAME, execute(data), context, {}, task, FilterKey.OUT)


def trained(data):
    result = weights(5.0, **{MetaKey.NUM_STEPS_CURRENT_ROUND: 41, MetaKey.INITIAL_METRICS: {"accuracy": 0.75}})
    result.set_header("secret", "somebody's name")
    return result


def flat(dxo):
    return np.concatenate([np.ravel(values) for values in dxo.data.values()]).astype(float)


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_a_result_is_the_protected_model_and_constants(tmp_path, kind):
    result = Site(tmp_path, GENEROUS, data_kind=kind)(weights(2.0), trained)
    dxo = from_shareable(result)
    assert (dxo.data_kind, dxo.meta) == (kind, {MetaKey.NUM_STEPS_CURRENT_ROUND: 1})
    assert result.get_header("secret") is None
    update = flat(dxo) - (2.0 if kind == DataKind.WEIGHTS else 0.0)
    assert np.linalg.norm(update) == pytest.approx(1, abs=1e-3)


def test_a_difference_is_bounded_as_a_model_is(tmp_path):
    result = Site(tmp_path, GENEROUS)(weights(2.0), lambda data: weights(3.0, DataKind.WEIGHT_DIFF))
    assert np.linalg.norm(flat(from_shareable(result)) - 2) == pytest.approx(1, abs=1e-3)


def test_tensors_are_answered_with_tensors(tmp_path):
    data = DXO(DataKind.WEIGHTS, {"w": torch.ones(2, dtype=torch.bfloat16)}).to_shareable()
    released = from_shareable(Site(tmp_path, GENEROUS)(data, lambda task: data)).data["w"]
    assert (type(released), released.dtype) == (torch.Tensor, torch.bfloat16)


def test_a_task_over_the_budget_touches_no_data(tmp_path):
    site = Site(tmp_path)
    for _ in range(2):
        site(weights(2.0), trained)
    with pytest.raises(PolicyRefused, match="this would be upload 3"):
        Site(tmp_path)(weights(2.0), trained)  # another job, another process
    with pytest.raises(PolicyRefused):
        site(weights(2.0), trained)
    assert site.touched == 2


@pytest.mark.parametrize(
    "data",
    [
        Shareable(),
        weights(float("nan")),
        weights(1.0, DataKind.WEIGHT_DIFF),
        DXO(DataKind.WEIGHTS, {"n": np.array([3])}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"bn.running_var": np.ones(3, np.float32)}).to_shareable(),
    ],
)
def test_what_cannot_be_bounded_is_refused_before_data(tmp_path, data):
    site = Site(tmp_path)
    with pytest.raises(NodeRefused):
        site(data, trained)
    assert site.touched == 0


@pytest.mark.parametrize(
    "failing",
    [
        lambda data: make_reply(ReturnCode.EXECUTION_EXCEPTION),
        lambda data: weights(float("inf")),
        lambda data: DXO(DataKind.METRICS, {"accuracy": 0.5}).to_shareable(),
        lambda data: DXO(DataKind.WEIGHT_DIFF, {"other": np.ones(2)}).to_shareable(),
    ],
)
def test_a_failing_result_is_noise_around_zero(tmp_path, failing):
    result = Site(tmp_path, GENEROUS)(weights(2.0), failing)
    assert result.get_return_code() == ReturnCode.OK
    assert np.abs(flat(from_shareable(result)) - 2).max() < 1e-3


def test_other_tasks_are_refused_unless_the_site_answers_them(tmp_path):
    for task in ("validate", "submit_model", ""):
        with pytest.raises(PolicyRefused, match="is no training"):
            Site(tmp_path)(weights(2.0), trained, task)
    metrics = DXO(DataKind.METRICS, {"accuracy": 0.5}).to_shareable()
    assert Site(tmp_path, evaluate=True)(weights(2.0), lambda data: metrics, "validate") is metrics
    assert not Site(tmp_path, train_tasks=["fit"])(weights(2.0), trained, "fit").get_header("secret")


def test_a_result_that_was_not_charged_stays(tmp_path):
    with pytest.raises(NodeRefused, match="among the task data filters, too"):
        Site(tmp_path, chains=[1])(weights(2.0), trained)


def test_wrong_settings_are_refused_where_a_site_writes_them(tmp_path):
    with pytest.raises(PlanError):
        nvflare_filter(tmp_path, "secure-sum:clip_norm=1", rounds=1)
    with pytest.raises(ValueError, match="WEIGHTS or WEIGHT_DIFF"):
        nvflare_filter(tmp_path, PLAN, rounds=1, data_kind="METRICS")
    assert isinstance(nvflare_filter(tmp_path, PLAN, rounds=1), Filter)
    assert (FilterContextKey.CHAIN_TYPE, FilterChainType.TASK_RESULT_CHAIN) == ("__chain_type", "task_result")


def test_a_chain_that_a_job_gives_for_all_tasks_is_applied_to_none(tmp_path):
    table = {}
    for tasks in (["*"], ["train"]):
        chain = FilterChain(FilterChainType.TASK_DATA_CHAIN, FilterKey.IN)
        chain.tasks, chain.filters = tasks, [nvflare_filter(tmp_path, PLAN, rounds=2)]
        FedJsonConfigurator._build_filter_table(None, chain, table)
    found = {
        task: len(get_filters(Scope.TASK_DATA_FILTERS_NAME, FLContext(), table, task, FilterKey.IN))
        for task in ("train", "validate")
    }
    assert found == {"train": 1, "validate": 0}
