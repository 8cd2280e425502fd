"""What a method registers: a name, a configuration, and how to build its two halves."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from privfed.federation import Clients, Message, ReleaseKind, Server, Streams
from privfed.methods.local_training import ClientData


class MethodConfig(BaseModel):
    """Base of every method's settings: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Facts:
    """All a server may know of a population: how many pseudonyms and how many items there are."""

    n_users: int
    n_items: int


@dataclass(frozen=True, slots=True)
class Method:
    """One registered method.

    Attributes:
        name: name on the command line.
        title: one line for people.
        source: paper and venue.
        config: its settings.
        release: what its server needs: every upload under a pseudonym, or only sums.
        upload: what a client sends (`rows` of a table, `dense` tables, `counts`).
        server: (config, facts, streams) -> public half.
        clients: (config, data, streams) -> private halves.
        reads: one sentence on what the server learns by design.
        step: the local training step, which a device may also run alone before it recommends; None where
            there is nothing to train.
        item_block: the block of an upload with one row per item, which item attacks look at.
        pull: (message addressed to clients, positions) -> the direction the server itself put into each
            client's training, known to it; None where there is none.
    """

    name: str
    title: str
    source: str
    config: type[MethodConfig]
    release: ReleaseKind
    upload: Literal["rows", "dense", "counts"]
    server: Callable[[Any, Facts, Streams], Server]
    clients: Callable[[Any, ClientData, Streams], Clients]
    reads: str
    step: str | None = "train"
    item_block: str = "items"
    pull: Callable[[Message, Tensor], Tensor] | None = None


class UnknownMethodError(ValueError):
    """No method of that name is registered."""


def methods() -> dict[str, Method]:
    """Every registered method by name (entry-point group `privfed.methods`)."""
    found = {entry.name: entry.load() for entry in entry_points(group="privfed.methods")}
    return dict(sorted(found.items()))


def method(name: str) -> Method:
    """The method registered as `name`.

    Raises:
        UnknownMethodError: there is none; the message lists those there are.
    """
    registered = methods()
    if name not in registered:
        raise UnknownMethodError(f"unknown method {name!r}; choose one of {', '.join(registered)}")
    return registered[name]
