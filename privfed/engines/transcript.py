"""Taps: copies of what an adversary at each place would have seen, for the audited users only.

`raw` is the update before any protection (an oracle, not an adversary), `wire` what leaves the device, `sum` the
released total, `model` the parameters everybody receives, `message` what the audited users were sent before they
trained, from which whoever sent it can repeat their training. With no tap set nothing is copied.

Beside a sum stands who is in it, block by block: what an attack is measured by, not what the server sees.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Int64
from safetensors import SafetensorError, safe_open
from torch import Tensor

from privfed.compute.devices import all_on_host
from privfed.contracts import TAPS, Tap
from privfed.engines.aggregation.held_blocks import Holdings
from privfed.engines.tensor_file import write_tensors
from privfed.federation import Call, Message
from privfed.updates import Rows

PROXIMAL = "@proximal"
"""Name of the server's own direction beside the blocks of an observation."""
HOLDS = "@holds"
"""Name of who sent which block into a sum, bool `[n, blocks]` for the audited users in it, blocks by name."""
HELD_BY = "@held_by"
"""Name of how many clients sent each block into a sum, int64 `[blocks]`."""
SENDERS = "@senders"
"""Name of how many clients sent anything into a sum, int64, no dimension."""
HOLDERS = "@holders"
"""Name of which blocks have the same clients in a sum: equal numbers for equal clients, int64 `[blocks]`."""

QUERY = "@query"
"""Name of the running number of the query that a message came with, int64, no dimension."""
CLIP_NORM = "@clip_norm"
"""Name of the clip norm that was announced with a message, float64, no dimension."""
_SHARED, _PERSONAL, _CONFIG = "shared/", "personal/", "config/"

NOBODY = torch.empty(0, dtype=torch.int64)


class TapsError(ValueError):
    """A file of what was tapped is damaged."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One tapped exchange.

    Attributes:
        tap: where it was seen.
        round: of the exchange.
        users: audited users it concerns, `[n]`; those who took part in a `sum` or were sent a `message`, none for
            `model`.
        tensors: block name -> `[n, *shape]` (or `[*shape]` for `sum` and `model`); the parts of a `message` under names
            that `received` reads.
    """

    tap: Tap
    round: int
    users: Int64[Tensor, " n"]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class SentRows:
    """Rows of a table that clients named in one chunk of a query.

    Attributes:
        round, query_id: of the query.
        block: the table.
        audited: audited users among the clients of the chunk.
        keys: user x rows + row for every row that they named, in the order sent.
        counts: how many clients of the chunk named each row.
    """

    round: int
    query_id: int
    block: str
    audited: Int64[Tensor, " users"]
    keys: Int64[Tensor, " sent"]
    counts: Int64[Tensor, " rows"]


@dataclass(slots=True, eq=False)
class Transcript:
    """What was tapped in one run.

    Attributes:
        audited: users whose uploads may be copied.
        taps: places to tap.
        rounds: rounds to tap; None taps every round.
        proximal: a method's `proximal`: its value travels with every raw or wire observation as `PROXIMAL`.
        step: the client step whose uploads and sums are copied; None copies those of every step.
        names_rows: whether to note which rows clients name where tables are sent row by row.
        sent_rows: these notes.
    """

    audited: Int64[Tensor, " users"]
    taps: frozenset[Tap] = frozenset({"wire"})
    rounds: frozenset[int] | None = None
    proximal: Callable[[Message, Tensor], Tensor] | None = None
    step: str | None = None
    names_rows: bool = False
    sent_rows: list[SentRows] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)

    def record_message(
        self,
        round: int,
        step: str,
        query_id: int,
        members: Int64[Tensor, " members"],
        message: Message,
        clip_norm: float | None,
    ) -> None:
        """Copy what the audited users among `members` are sent, if this exchange is wanted.

        Args:
            round: of the exchange.
            step: that it queries.
            query_id: running number within the cohort.
            members: everybody who is queried.
            message: not yet addressed.
            clip_norm: announced with it, or None.
        """
        if not self.wants("message", round, step):
            return
        here = members[torch.isin(members, self.audited)]
        own = message.addressed_to(here)
        tensors = {_SHARED + name: value.clone() for name, value in own.shared.items()}
        tensors |= {_PERSONAL + name: value.clone() for name, value in own.personal.items()}
        numbers = {_CONFIG + name: value for name, value in own.config.items()}
        if clip_norm is not None:
            numbers[CLIP_NORM] = clip_norm
        tensors |= {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
        tensors[QUERY] = torch.tensor(query_id)
        self._keep("message", round, here, tensors)

    def record_rows(self, call: Call, part: Rows, rows: int) -> None:
        """Note which rows of a table of so many the clients of a call name, if that is wanted."""
        if not self.names_rows:
            return
        users = call.clients[part.owner]
        mine = torch.isin(users, self.audited)
        here = call.clients[torch.isin(call.clients, self.audited)]
        keys = users[mine] * rows + part.ids[mine]
        counts = torch.bincount(part.ids, minlength=rows)
        self.sent_rows.append(SentRows(call.round, call.query_id, part.block, here.cpu(), keys.cpu(), counts.cpu()))

    def wants(self, tap: Tap, round: int, step: str | None = None) -> bool:
        """Whether this exchange is to be copied; one with clients has a step."""
        mine = step is None or self.step in (None, step)
        return mine and tap in self.taps and (self.rounds is None or round in self.rounds)

    def record_uploads(
        self,
        tap: Tap,
        call: Call,
        message: Message,
        uploads: Callable[[Int64[Tensor, " m"]], Mapping[str, Tensor]],
        positions: Int64[Tensor, " n"] | None = None,
    ) -> Observation | None:
        """Copy the uploads of audited users among the called clients, if this exchange is wanted; gives the copy.

        Args:
            tap: `raw` or `wire`.
            call: the exchange.
            message: as these clients received it.
            uploads: positions (into `positions`, or into the call) -> blocks of those clients, as tensors of their own.
            positions: which of the called clients `uploads` can show; None shows all.
        """
        if not self.wants(tap, call.round, call.step):
            return None
        shown = torch.arange(len(call.clients)) if positions is None else positions
        at = torch.isin(call.clients[shown], self.audited).nonzero().squeeze(1)
        if len(at) == 0:
            return None
        tensors = dict(uploads(at))
        if self.proximal is not None:
            tensors[PROXIMAL] = self.proximal(message, shown[at])
        return self._keep(tap, call.round, call.clients[shown][at], tensors)

    def repeat_uploads(self, tap: Tap, seen: Observation, step: str) -> None:
        """Note at another tap what nothing has changed since it was copied, if it is wanted there."""
        if self.wants(tap, seen.round, step):
            self.observations.append(replace(seen, tap=tap))

    def record_public(self, round: int, tensors: Mapping[str, Tensor]) -> None:
        """Copy the model that everybody sees, if this round is wanted."""
        if self.wants("model", round):
            copies = {name: value.clone() for name, value in tensors.items()}
            self._keep("model", round, NOBODY, copies)

    def record_sum(
        self,
        round: int,
        step: str,
        members: Int64[Tensor, " members"],
        sums: Mapping[str, Tensor],
        holdings: Holdings,
    ) -> None:
        """Copy a released sum with the audited users in it, if this exchange is wanted.

        Args:
            round: of the exchange.
            step: of its clients.
            members: who took part.
            sums: released.
            holdings: who of them sent which block.
        """
        if not self.wants("sum", round, step) or not holdings.blocks:
            return
        held, number = holdings.held, dict[str, int]()
        for place, group in enumerate(holdings.groups()):
            number |= dict.fromkeys(group.blocks, place)
        names = sorted(holdings.blocks)
        columns = torch.tensor([holdings.blocks.index(name) for name in names])
        here = torch.isin(members, self.audited)
        copies = {name: value.clone() for name, value in sums.items()}
        copies[HOLDS] = held[here][:, columns]
        copies[HELD_BY] = held.sum(0)[columns]
        copies[SENDERS] = held.any(1).sum()
        copies[HOLDERS] = torch.tensor([number[name] for name in names])
        self._keep("sum", round, members[here], copies)

    def _keep(self, tap: Tap, round: int, users: Int64[Tensor, " n"], tensors: Mapping[str, Tensor]) -> Observation:
        """Attacks read their copies on the host, wherever the run computes."""
        seen = Observation(tap, round, users.cpu(), all_on_host(tensors))
        self.observations.append(seen)
        return seen

    def joined(self, tap: Tap) -> list[Observation]:
        """One observation per tapped round, users ascending.

        It takes the place of those of its chunks, which are as large again: gigabytes where uploads are dense.
        """
        if tap in ("sum", "model", "message"):
            return sorted((o for o in self.observations if o.tap == tap), key=lambda seen: seen.round)
        rounds = sorted({o.round for o in self.observations if o.tap == tap})
        return [self._joined(tap, round) for round in rounds]

    def _joined(self, tap: Tap, round: int) -> Observation:
        chunks = [o for o in self.observations if o.tap == tap and o.round == round]
        if len(chunks) == 1 and bool((chunks[0].users.diff() > 0).all()):
            return chunks[0]
        users = torch.cat([o.users for o in chunks])
        tensors = {name: torch.cat([o.tensors[name] for o in chunks]) for name in chunks[0].tensors}
        if not (users.diff() > 0).all():
            order = users.argsort()
            users, tensors = users[order], {name: values[order] for name, values in tensors.items()}
        whole = Observation(tap, round, users, tensors)
        self.observations = [whole, *(o for o in self.observations if o.tap != tap or o.round != round)]
        return whole

    def save(self, folder: Path) -> None:
        """Write a safetensors file per tap and round (and sum of a round) into `folder`, each whole or not at all."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # single uploads, under their users' numbers
        for tap in self.taps:
            earlier = Counter[int]()
            for seen in self.joined(tap):
                another = f"-{earlier[seen.round]:03d}" if earlier[seen.round] else ""
                path = folder / f"{tap}-{seen.round:06d}{another}.safetensors"
                earlier[seen.round] += 1
                if not path.exists():
                    partial = path.with_suffix(".partial")
                    write_tensors(partial, {**seen.tensors, "@users": seen.users})
                    partial.replace(path)

    def load(self, folder: Path, *, before: int) -> None:
        """Take back what an earlier part of the run saved about rounds below `before`."""
        self.observations = [o for o in load_observations(folder) if o.round < before]


def received(seen: Observation) -> Message:
    """The message of an observation of tap `message`, as its users received it."""

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): value for name, value in seen.tensors.items() if name.startswith(prefix)}

    numbers = {name: float(value) for name, value in part(_CONFIG).items()}
    return Message(part(_SHARED), part(_PERSONAL), numbers)


def load_observations(folder: Path, taps: Iterable[Tap] = TAPS) -> list[Observation]:
    """Read what `Transcript.save` wrote, by tap and then by round.

    Raises:
        TapsError: a file cannot be read.
    """
    out = []
    for tap in taps:
        for path in sorted(folder.glob(f"{tap}-*.safetensors"), key=lambda path: path.stem):
            try:
                with safe_open(path, framework="pt") as file:
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no __iter__)
                users, round = tensors.pop("@users"), int(path.stem.split("-")[1])
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                raise TapsError(
                    f"the tapped messages in {path} are damaged ({error}); restore the file, or run again in another "
                    "folder"
                ) from error
            out.append(Observation(tap, round, users, tensors))
    return out
