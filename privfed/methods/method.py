"""What a method registers: a name, a configuration, and how to build its two halves."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from privfed.compute.devices import HOST, here
from privfed.contracts import NoisySums, ReleaseKind, Schema
from privfed.data import Histories
from privfed.evaluation import Task
from privfed.federation import Clients, Message, Server, Streams
from privfed.methods.client_data import ClientData
from privfed.updates import Chunk


class MethodConfig(BaseModel):
    """Base of every method's settings: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class PublicInfo:
    """All a server may know of a population.

    Attributes:
        n_users: how many pseudonyms there are.
        n_items: size of the catalogue.
        public: training items of every user, where the problem declares them public (`Method.public_target`); None
            everywhere else.
        sums: what the plan tells about released sums: how many clients, how long uploads, how much noise.
        item_info: public descriptions of the items (`title`, `genres`, ... as far as the source has them), one row per
            item; None where there are none.
    """

    n_users: int
    n_items: int
    public: Histories | None = None
    sums: NoisySums | None = None
    item_info: pd.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class ItemBlocks:
    """Names of the blocks of an upload that say something about single items, each `[items, ...]`.

    Attributes:
        output: rows on the way out: the item table, or the last layer's weights `[items, width]`; None where they are
            spread over several blocks and `rows` makes them.
        input: rows on the way in: the first layer's weights `[items, width]`; None where there are none.
        bias: the last layer's bias `[items]`; None where there is none.
        rows: blocks `[n, *shape]` -> rows on the way out `[n, items, width]`; None where one block has them.
    """

    output: str | None
    input: str | None = None
    bias: str | None = None
    rows: Callable[[Mapping[str, Tensor]], Tensor] | None = None

    def read(self, blocks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What n uploads or sums say about single items: `uploads` and, where there are such blocks, `inputs`, `bias`.

        Args:
            blocks: `[n, *shape]` each.
        """
        found = {"inputs": self.input, "bias": self.bias, "uploads": self.output}
        said = {role: blocks[name] for role, name in found.items() if name is not None}
        return said if self.rows is None else said | {"uploads": self.rows(blocks)}


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """One ask of a round before it is made.

    Attributes:
        schema: blocks that a client may upload.
        down_bytes: what one client downloads with it.
    """

    schema: Schema
    down_bytes: int


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
            there is nothing to train, or where a device brings itself up to date whenever it is asked for scores.
        uploads_once: whether clients are asked in the first round only.
        public_target: whether the problem declares training items of the target behaviour public, so that the server
            has them and only examinations are private.
        program: server -> all asks of a round, one after the other; by default its own schema, once.
        integers: whether all that is uploaded are whole numbers, which no clip or noise covers.
        chunk: clients that are best trained together on the processor, by the blocks they are asked for where it
            depends on sizes; None leaves it to the engine.
        host_work: what the processor computes wherever tensors live, as compiled loops and sparse solvers do; None
            where nothing heavy is, so that the method runs on an accelerator as a whole.
        item_block: the block of an upload with one row per item, which item attacks look at; on the way out of
            the model, where rows go in too. Here and below a `*` stands for anything and means the last block of
            the server's schema that fits: `decoder.*.weight` is the last layer, however deep the decoder. None where
            no upload of the training step has a row per item in one block.
        item_rows: (settings, schema, blocks `[n, *shape]` of n uploads or sums) -> one row per item
            `[n, items, width]`, for methods whose rows are spread over several blocks; it goes before `item_block`.
            Blocks that somebody does not hold come as zeros.
        input_block: the block with one row per item on the way into the model: the first layer of an autoencoder.
        bias_block: the block with one number per item: the last layer's bias.
        extra_queries: settings -> asks of the first round besides the training step's.
        task: settings -> what its scores are: to rank items by, or predicted ratings. A run is measured as such.
        pull: (message addressed to clients, positions) -> the direction the server itself put into each
            client's training, known to it; None where there is none.
        infer_sizes: (clients, users, uploads `[n, *shape]` of theirs) -> puts clients that repeat these users' training
            into the groups that the uploads show; None where all devices train alike, or it is public which trains how.
        published: (settings, public parameters) -> parameters by the names of the blocks that change them; None where
            they have these names anyway.
        interaction_level: whether every step of its clients can train as `Call.noisy_steps` says, with a bound and
            noise for single interactions.
        side_disclosures: settings -> sentences about what the method itself shows beside uploads, whatever the plan: a
            group chosen by activity, the capacity of a device. They stand among the run's statements.
        cross_user_dependence: settings -> how one user's data decides over what other users upload, as in a ranking of
            everybody's activity; None where it does not. Where it does, a user's influence on a sum is not what the
            user uploads, so plans that guarantee anything refuse it.
    """

    name: str
    title: str
    source: str
    config: type[MethodConfig]
    release: ReleaseKind
    upload: Literal["rows", "dense", "counts"]
    server: Callable[[Any, PublicInfo, Streams], Server]
    clients: Callable[[Any, ClientData, Streams], Clients]
    reads: str
    step: str | None = "train"
    uploads_once: bool = False
    public_target: bool = False
    program: Callable[[Any], Sequence["PlannedQuery"]] = lambda server: [
        PlannedQuery(server.schema, server.public().bytes_per_client())
    ]
    integers: bool = False
    chunk: Chunk | None = None
    host_work: str | None = None
    item_block: str | None = "items"
    item_rows: Callable[[Any, Schema, Mapping[str, Tensor]], Tensor] | None = None
    input_block: str | None = None
    bias_block: str | None = None
    pull: Callable[[Message, Tensor], Tensor] | None = None
    infer_sizes: Callable[[Any, Tensor, Mapping[str, Tensor]], None] | None = None
    published: Callable[[Any, Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None
    interaction_level: bool = False
    extra_queries: Callable[[Any], int] = lambda config: 0  # noqa: ARG005 (most methods have none, whatever their settings)
    task: Callable[[Any], Task] = lambda config: "ranking"  # noqa: ARG005 (most methods rank, whatever their settings)
    side_disclosures: Callable[[Any], Sequence[str]] = lambda config: ()  # noqa: ARG005 (most methods show nothing else)
    cross_user_dependence: Callable[[Any], str | None] = lambda config: None  # noqa: ARG005 (most users train on their own data)

    def chunk_here(self) -> Chunk | None:
        """Clients that are best trained together where tensors are made now; None leaves it to the engine."""
        return self.chunk if here() == HOST or self.host_work is not None else None

    @property
    def has_item_rows(self) -> bool:
        """Whether uploads of the training step say something about single items, so that item attacks can read them."""
        return self.item_rows is not None or self.item_block is not None

    def item_blocks(self, schema: Schema, settings: Any = None) -> ItemBlocks | None:
        """The blocks of `schema` that play each role; None where uploads have no row per item, or nothing is uploaded.

        Args:
            schema: of the server.
            settings: of the run; only `item_rows` needs them.

        Raises:
            BlockError: a role's name fits none of them.
        """
        if not self.has_item_rows or not schema:
            return None
        made = None if self.item_rows is None else partial(self.item_rows, settings, schema)
        return ItemBlocks(
            None if made is not None or self.item_block is None else self._last(self.item_block, schema),
            None if self.input_block is None else self._last(self.input_block, schema),
            None if self.bias_block is None else self._last(self.bias_block, schema),
            made,
        )

    def _last(self, pattern: str, schema: Schema) -> str:
        fitting = [name for name in schema if fnmatchcase(name, pattern)]
        if not fitting:
            raise BlockError(
                f"method {self.name!r} names the block {pattern!r} for attacks to look at, but its server declares "
                f"{', '.join(schema)}; name one of these, or use * for a part that varies"
            )
        return fitting[-1]


class BlockError(ValueError):
    """A method names a block that its server does not declare."""


class UnknownMethodError(ValueError):
    """No method of that name is registered."""


def methods() -> dict[str, Method]:
    """Every registered method by name (entry-point group `privfed.methods`)."""
    return {name: entry.load() for name, entry in sorted(_registered(entry_points, tuple(sys.path)).items())}


def method(name: str) -> Method:
    """The method registered as `name`.

    Raises:
        UnknownMethodError: there is none; the message lists those there are.
    """
    entries = _registered(entry_points, tuple(sys.path))
    if name not in entries:
        raise UnknownMethodError(f"unknown method {name!r}; choose one of {', '.join(sorted(entries))}")
    registered: Method = entries[name].load()
    return registered


@cache
def _registered(find: Callable[..., Iterable[Any]], path: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001 (the key)
    """Entry points of all methods: looking through every installed package takes tens of milliseconds."""
    return {entry.name: entry for entry in find(group="privfed.methods")}
