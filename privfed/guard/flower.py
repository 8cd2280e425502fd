"""`flower_mod`: the guard as a mod of Flower's ClientApp.

The mod goes innermost, next to the app: `mods=[secaggplus_mod, guard]`, so that everything outside it sees protected
numbers only. It answers the message API (one ArrayRecord in, one out) and the older NumPyClient alike.

Flower ships apps: whoever may give `flwr run` may ship one without this mod. A node whose owner does not want that
takes no app but reviewed ones (`flower-supernode --trusted-entities`). Folder and policy are the owner's in any case:
`flower-supernode --node-config 'guard="/srv/guard"'` names the folder whatever the app says, and its `node.toml` bounds
what the app may ask for.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from torch import Tensor

from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.public_sentence import public_sentence
from privfed.guard.examination import refuse_large
from privfed.guard.guard import Guard
from privfed.guard.terms import local_plan
from privfed.privacy import PrivacyPlan

_log = logging.getLogger("privfed.guard")

_TRAIN = "train"
_INS, _RES = "fitins.", "fitres."
_FOLDER, _PARTITION = "guard", "partition-id"

Next = Callable[[Message, Context], Message]


def flower_mod(
    plan: PrivacyPlan | str,
    *,
    rounds: int,
    folder: Path | str | None = None,
    people: int = 1,
    evaluate: bool = False,
    constants: Mapping[str, float] | None = None,
) -> "FlowerGuard":
    """A mod that guards everything that a ClientApp sends.

    Args:
        plan: local noise, such as `local-gaussian:clip_norm=1,epsilon=8`.
        rounds: number of messages that are trained on, over all runs.
        folder: absolute, of the guard's ledger and policy; the SuperNode's own `--node-config 'guard="..."'` overrules
            it. Nodes that share a file system get one folder each inside it, by the partition of their `--node-config`.
        people: number of people whose data the node trains on.
        evaluate: whether metrics of messages that are not training leave, exactly and outside the ledger.
        constants: metrics of every reply, in the place of those of training; `num-examples`, by which strategies weigh
            nodes, is 1 unless given: the number of examples is data.

    Raises:
        PlanError: the plan is no local one, or cannot be read.
    """
    local_plan(plan, rounds)
    return FlowerGuard(
        plan, rounds, folder, people, evaluate=evaluate, constants={"num-examples": 1, **(constants or {})}
    )


class FlowerGuard:
    """The mod; see `flower_mod`."""

    def __init__(
        self,
        plan: PrivacyPlan | str,
        rounds: int,
        folder: Path | str | None,
        people: int,
        *,
        evaluate: bool,
        constants: Mapping[str, float],
    ) -> None:
        self._plan, self._rounds, self._folder, self._people = plan, rounds, folder, people
        self._evaluate, self._constants = evaluate, dict(constants)
        self._guards: dict[Path, Guard] = {}

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        """Answer one message."""
        try:
            guard = self.guard(context)
            kind = str(message.metadata.message_type)
            if kind.partition(".")[0] != _TRAIN:
                guard.accept_unprotected(kind)
                return Message(_without_arrays(call_next(message, context)), reply_to=message)
            name, record = _model(message)
            before = guard.admit(_arrays(record, guard.policy.max_message_mib * 2**20))
        except Exception as refused:  # whatever it is, nothing was trained on
            _log.warning("a message is refused: %s", refused)
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, public_sentence(refused)), reply_to=message)

        def train() -> dict[str, np.ndarray]:
            return {key: array.numpy() for key, array in _model(call_next(message, context))[1].items()}

        return Message(self._reply(name, guard.protect(before, train)), reply_to=message)

    def guard(self, context: Context) -> Guard:
        """The guard of the node that a context belongs to; its folder is named by its owner, never by a message.

        Raises:
            NodeRefused: nobody names a folder.
            PrivacyError: the plan or the owner's policy forbids it.
        """
        given = context.node_config.get(_FOLDER, self._folder)
        if given is None:
            raise NodeRefused(
                "nobody names this node's guard folder: start its SuperNode with --node-config 'guard=\"/srv/guard\"'"
            )
        folder = Path(str(given))
        if _FOLDER not in context.node_config and _PARTITION in context.node_config:
            folder /= f"partition-{int(context.node_config[_PARTITION])}"
        if folder not in self._guards:
            self._guards[folder] = Guard(
                folder, self._plan, rounds=self._rounds, people=self._people, evaluate=self._evaluate
            )
        return self._guards[folder]

    def _reply(self, name: str, released: Mapping[str, Tensor]) -> RecordDict:
        """The protected model and constants, as records that follow from the message alone."""
        arrays = ArrayRecord({key: Array(np.asarray(values.numpy())) for key, values in released.items()})
        if name.startswith(_INS):
            return RecordDict(
                {
                    f"{_RES}parameters": arrays,
                    f"{_RES}num_examples": MetricRecord({"num_examples": int(self._constants["num-examples"])}),
                    f"{_RES}metrics": ConfigRecord({}),
                    f"{_RES}status": ConfigRecord({"code": 0, "message": ""}),
                }
            )
        return RecordDict({name: arrays, "metrics": MetricRecord(dict(self._constants))})


def _model(message: Message) -> tuple[str, ArrayRecord]:
    """The one ArrayRecord of a message, with its name.

    Raises:
        NodeRefused: there is none, or several.
    """
    if message.has_error() or len(message.content.array_records) != 1:
        raise NodeRefused(
            "a message to train on and its reply hold one ArrayRecord, the model; put a guard behind mods that speak "
            "other messages, as in mods=[secaggplus_mod, guard]"
        )
    ((name, record),) = message.content.array_records.items()
    return str(name), record


def _arrays(record: ArrayRecord, max_bytes: int) -> dict[str, np.ndarray]:
    """Arrays of a record, whose size is looked at before any is read.

    Raises:
        NodeRefused: they are too large, or no arrays.
    """
    refuse_large(sum(len(array.data) for array in record.values()), max_bytes)
    try:
        return {key: array.numpy() for key, array in record.items()}
    except Exception as error:
        raise NodeRefused("the message's ArrayRecord holds bytes that are no numpy arrays; send arrays") from error


def _without_arrays(reply: Message) -> RecordDict:
    """Metrics of a reply; no array leaves, and no error, whose sentence may quote data.

    Raises:
        NodeRefused: it has an error.
    """
    if reply.has_error():
        raise NodeRefused("this node's app failed on the message; its own log says more")
    arrays = set(reply.content.array_records)
    return RecordDict({name: record for name, record in reply.content.items() if name not in arrays})
