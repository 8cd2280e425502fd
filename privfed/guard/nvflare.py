"""`nvflare_filter`: the guard as a filter of NVFlare, for a client's task data and for its task results.

Both chains need it: the first refuses and charges before an executor runs, the second replaces what it returns. A site
that puts both into its own `privacy.json` has them around every task of every job, whatever the job says. A job that
brings them has to name its tasks: NVFlare 2.9 compares names, so a chain for `*` is applied to no task at all.

What NVFlare does beside its filters no filter sees: that an executor raised, its logs and its streamed metrics go to
the server past both chains, so epsilon assumes an executor that answers every task and streams nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from torch import Tensor

from privfed.engines.nodes.errors import NodeRefused
from privfed.guard.guard import Guard

_ADMITTED = "__privfed_guard_admitted"
_TRAIN = ("train",)


class GuardFilter(Filter):
    """The filter; see `nvflare_filter`, whose arguments it has, so that a job's or a site's configuration can name it.

    Args:
        folder: absolute, of the guard's ledger and policy.
        plan: local noise, such as `local-gaussian:clip_norm=1,epsilon=8`.
        rounds: number of tasks that are trained on, over all jobs.
        people: number of people whose data the site trains on.
        evaluate: whether results of other tasks leave, exactly and outside the ledger.
        train_tasks: names of the tasks that train.
        data_kind: of results, `WEIGHTS` or `WEIGHT_DIFF`.
    """

    def __init__(
        self,
        folder: str,
        plan: str,
        rounds: int,
        people: int = 1,
        evaluate: bool = False,  # noqa: FBT001, FBT002 - NVFlare's configuration names arguments
        train_tasks: Sequence[str] = _TRAIN,
        data_kind: str = "WEIGHTS",
    ) -> None:
        super().__init__()
        self.folder, self.plan, self.rounds, self.people = str(folder), plan, rounds, people
        self.evaluate, self.train_tasks, self.data_kind = evaluate, list(train_tasks), data_kind
        if data_kind not in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF):
            raise ValueError(f"data_kind = {data_kind!r} is not allowed: results are WEIGHTS or WEIGHT_DIFF")
        self._guard = Guard(Path(folder), plan, rounds=rounds, people=people, evaluate=evaluate)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Admit a task, or protect its result.

        Raises:
            NodeRefused: NVFlare then sends an error in the place of the task's result, and no sentence.
        """
        task = str(fl_ctx.get_prop(FLContextKey.TASK_NAME, ""))
        if task not in self.train_tasks:
            self._guard.accept_unprotected(task)
            return shareable
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_RESULT_CHAIN:
            return self._protected(shareable, fl_ctx)
        weights = _weights(shareable)
        tensors = any(isinstance(values, Tensor) for values in weights.values())
        fl_ctx.set_prop(_ADMITTED, (self._guard.admit(weights), tensors), private=True, sticky=False)
        return shareable

    def _protected(self, result: Shareable, fl_ctx: FLContext) -> Shareable:
        admitted: tuple[dict[str, Tensor], bool] | None = fl_ctx.get_prop(_ADMITTED)
        if admitted is None:
            raise NodeRefused("the task was not charged: put the guard among the task data filters, too")
        fl_ctx.set_prop(_ADMITTED, None, private=True, sticky=False)
        before, tensors = admitted

        def train() -> dict[str, Any]:
            dxo = from_shareable(result)
            difference = dxo.data_kind == DataKind.WEIGHT_DIFF
            return {
                name: before[name] + _tensor_like(values, before[name]) if difference else values
                for name, values in dxo.data.items()
            }

        released = self._guard.protect(before, train)
        if self.data_kind == DataKind.WEIGHT_DIFF:
            released = {name: values - before[name] for name, values in released.items()}
        # Aggregators weigh by the number of steps, which follows from the number of examples.
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: 1}
        data = {name: values if tensors else values.numpy() for name, values in released.items()}
        return DXO(self.data_kind, data, meta).to_shareable()


def nvflare_filter(folder: Path | str, plan: str, *, rounds: int, **settings: Any) -> GuardFilter:
    """A filter that guards what a client's tasks return; it belongs into both chains of filters.

    Args:
        folder: absolute, of the guard's ledger and policy.
        plan: local noise, such as `local-gaussian:clip_norm=1,epsilon=8`.
        rounds: number of tasks that are trained on, over all jobs.
        **settings: `people`, `evaluate`, `train_tasks` and `data_kind` of `GuardFilter`.

    Raises:
        PrivacyError: the plan is no local one, or the owner's policy does not allow it.
    """
    return GuardFilter(str(folder), plan, rounds, **settings)


def _weights(shareable: Shareable) -> dict[str, Any]:
    """The model in a task's data.

    Raises:
        NodeRefused: there is none.
    """
    try:
        dxo = from_shareable(shareable)
    except Exception as error:
        raise NodeRefused("the task holds no model that could be bounded; send one as a DXO of weights") from error
    if dxo.data_kind != DataKind.WEIGHTS or not isinstance(dxo.data, dict):
        raise NodeRefused("the task holds no whole model; send one as a DXO of weights")
    return dxo.data


def _tensor_like(values: Any, like: Tensor) -> Tensor:
    return like.new_tensor(values)
