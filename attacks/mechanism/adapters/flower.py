"""Flower's wrappers and mods for differential privacy: one round of FedAvg in this process, its own code throughout.

Inputs are updates, one row per client, or a mapping with "update" and, where clients say how many examples they have,
"examples". An update of exactly zero ends Flower's round in a division by zero; one of length 1e-9 is sent in its
place, so that a client whose update is zero can be one of two neighbours.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np

from attacks.mechanism.adapters.package import package
from attacks.mechanism.claim import Claim
from attacks.mechanism.release import Release

Side: TypeAlias = Literal["server", "client"]
"""Where updates are clipped."""

_SMALLEST = 1e-9


def claim(noise_multiplier: float, clients: int, *, delta: float = 1e-5, steps: int = 1) -> Claim:
    """What `RdpAccountant` says of rounds in which these clients take part, without amplification by sampling."""
    accounting = package("flwr.supercore.privacy_accounting", "flwr")
    accountant = _accountant(clients, delta)
    accountant.compose(accounting.GaussianPrivacyEvent(noise_multiplier, clients, clients), steps)
    return Claim(float(accountant.get_epsilon(delta)), delta, "add_or_remove", steps=steps)


def fixed_clipping(
    noise_multiplier: float,
    *,
    side: Side = "server",
    clip: float = 1.0,
    clients: int | None = None,
    accountant: bool = False,
) -> Release:
    """`DifferentialPrivacyServerSideFixedClipping`, or the client-side one with `fixedclipping_mod`.

    Args:
        noise_multiplier: As Flower calls it.
        side: Where updates are clipped.
        clip: Clipping norm.
        clients: Clients that a round samples of those whose rows it gets; by default all.
        accountant: Whether an `RdpAccountant` checks the round, which then needs equal weights.
    """
    strategies, mods = package("flwr.serverapp.strategy", "flwr"), package("flwr.clientapp.mod", "flwr")
    name = f"DifferentialPrivacy{side.capitalize()}SideFixedClipping"

    def release(inputs: Any, generator: Any) -> Any:
        del generator
        n = len(_updates(inputs))
        sampled = clients or n
        wrapper = getattr(strategies, name)(
            _fedavg(sampled),
            noise_multiplier,
            clip,
            sampled,
            accountant=_accountant(n, 1e-5) if accountant else None,
        )
        return _round(wrapper, inputs, [mods.fixedclipping_mod] if side == "client" else [])[0]

    return release


def expected_clients(noise_multiplier: float, clients: int, *, clip: float = 1.0) -> Release:
    """Server-side fixed clipping made for a number of clients, of which more or fewer reply; without accountant."""
    strategies = package("flwr.serverapp.strategy", "flwr")

    def release(inputs: Any, generator: Any) -> Any:
        del generator
        replies = len(_updates(inputs))
        wrapper = strategies.DifferentialPrivacyServerSideFixedClipping(
            _fedavg(replies), noise_multiplier, clip, clients
        )
        return _round(wrapper, inputs, [])[0]

    return release


def adaptive_clipping(
    noise_multiplier: float,
    *,
    count_noise: float,
    side: Side = "server",
    clip: float = 1.0,
    metrics: bool = False,
) -> Release:
    """`DifferentialPrivacyServerSideAdaptiveClipping`, or the client-side one with `adaptiveclipping_mod`.

    What leaves is the model and the next clipping norm, which is sent to clients or sets the scale of the next noise.

    Args:
        noise_multiplier: As Flower calls it.
        count_noise: Standard deviation of the noise on the number of clipped updates.
        side: Where updates are clipped.
        clip: First clipping norm.
        metrics: Whether the round's aggregated metrics leave too.
    """
    strategies, mods = package("flwr.serverapp.strategy", "flwr"), package("flwr.clientapp.mod", "flwr")
    name = f"DifferentialPrivacy{side.capitalize()}SideAdaptiveClipping"

    def release(inputs: Any, generator: Any) -> Any:
        del generator
        sampled = len(_updates(inputs))
        wrapper = getattr(strategies, name)(
            _fedavg(sampled), noise_multiplier, sampled, clip, clipped_count_stddev=count_noise
        )
        model, measured = _round(wrapper, inputs, [mods.adaptiveclipping_mod] if side == "client" else [])
        left = {"model": model, "clipping_norm": wrapper.clipping_norm}
        return left | {"metrics": measured} if metrics else left

    return release


def local_dp(epsilon: float, delta: float, *, sensitivity: float, clip: float = 1.0) -> Release:
    """What every client sends that has `LocalDpMod`."""
    mod = package("flwr.clientapp.mod", "flwr").LocalDpMod(clip, sensitivity, epsilon, delta)

    def release(inputs: Any, generator: Any) -> Any:
        del generator
        updates = _updates(inputs)
        app = _app()
        with _identity():
            messages = _fedavg(len(updates)).configure_train(1, _arrays(updates[:1] * 0), _config(), _Nodes(updates))
            sent = {message.metadata.dst_node_id: _reply(_client(inputs, [mod]), message) for message in messages}
        return [_numbers(sent[node].content["arrays"], app) for node in sorted(sent)]

    return release


class _Nodes:
    """As much of a `Grid` as sampling needs."""

    def __init__(self, updates: np.ndarray) -> None:
        self.ids = range(1, len(updates) + 1)

    def get_node_ids(self) -> Sequence[int]:
        """A node for each row."""
        return self.ids


def _round(strategy: Any, inputs: Any, mods: list[Any]) -> tuple[Any, dict[str, Any]]:
    """Model and metrics after one round: configure, every client's reply, aggregate."""
    updates = _updates(inputs)
    client = _client(inputs, mods)
    with _identity():
        start = _arrays(np.zeros_like(updates[:1]) if len(updates) else updates)
        messages = list(strategy.configure_train(1, start, _config(), _Nodes(updates)))
        model, metrics = strategy.aggregate_train(1, [_reply(client, message) for message in messages])
    return _numbers(model, _app()), dict(metrics or {})


def _client(inputs: Any, mods: list[Any]) -> Any:
    """A `ClientApp` whose node sends its row, on top of the model that it was sent."""
    app, updates = _app(), _updates(inputs)
    examples = inputs["examples"] if isinstance(inputs, Mapping) and "examples" in inputs else np.ones(len(updates))
    client = package("flwr.clientapp", "flwr").ClientApp(mods=mods)

    def train(message: Any, context: Any) -> Any:
        del context
        row = message.metadata.dst_node_id - 1
        model = message.content["arrays"]["model"].numpy()
        content = {
            "arrays": _arrays((model + updates[row])[None]),
            "metrics": app.MetricRecord({"num-examples": float(examples[row])}),
        }
        return app.Message(app.RecordDict(content), reply_to=message)

    client.train()(train)
    return client


def _reply(client: Any, message: Any) -> Any:
    app = _app()
    return client(message, app.Context(0, message.metadata.dst_node_id, {}, app.RecordDict(), {}))


def _updates(inputs: Any) -> np.ndarray:
    updates = np.asarray(inputs["update"] if isinstance(inputs, Mapping) else inputs)
    moved = np.array(updates)
    moved[~updates.any(axis=1), :1] = _SMALLEST
    return moved


def _arrays(rows: np.ndarray) -> Any:
    """An `ArrayRecord` of the first row."""
    app = _app()
    return app.ArrayRecord({"model": app.Array(np.array(rows[0]))})


def _numbers(record: Any, app: Any) -> Any:
    """Arrays of a record; without one, the round was given up."""
    return record.to_numpy_ndarrays() if isinstance(record, app.ArrayRecord) else {"given up": 1.0}


def _fedavg(sampled: int) -> Any:
    """FedAvg that samples exactly so many nodes."""
    return package("flwr.serverapp.strategy", "flwr").FedAvg(
        fraction_train=1e-9, min_train_nodes=sampled, min_available_nodes=sampled
    )


def _accountant(population: int, delta: float) -> Any:
    accounting = package("flwr.supercore.privacy_accounting", "flwr")
    config = accounting.PrivacyConfig(
        delta,
        population,
        accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        accounting.SamplingMethod.NO_AMPLIFICATION,
    )
    return package("flwr.supercore.privacy_accounting.rdp_accountant", "flwr").RdpAccountant(config)


def _config() -> Any:
    return _app().ConfigRecord({})


def _app() -> Any:
    return package("flwr.app", "flwr")


@contextmanager
def _identity() -> Iterator[None]:
    """Flower's messages ask which task sends them; afterwards it is whoever it was, and Flower logs as before."""
    identity = package("flwr.supercore.task_identity", "flwr").TaskIdentity
    logger = logging.getLogger("flwr")
    before = {name: getattr(identity, name) for name in ("_task_id", "_run_id", "_node_id")}
    disabled, logger.disabled = logger.disabled, True
    try:
        identity.task_id, identity.run_id, identity.node_id = 1, 1, 0
        yield
    finally:
        logger.disabled = disabled
        for name, value in before.items():
            setattr(identity, name, value)
