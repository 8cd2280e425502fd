"""Clients that upload what is prescribed, so that an engine releases the worst uploads there are.

A probed upload lies on short blocks under the names, weights and shares of the method's own. In a sum every user has a
slot of its own in every block, so that one sum is as many draws as it has slots: noise is independent per coordinate.

The sign of an upload alternates from query to query and from round to round. Noise that repeats then cancels where the
upload adds up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from privfed.audit.active.stateless import StatelessClients
from privfed.contracts import Block, Schema
from privfed.federation import Call, Message
from privfed.privacy import PrivacyPlan
from privfed.updates import ClientUpdates, Dense, LowRank, Part, Rows

STEP = "upload"
"""The only step of the clients of a probe."""

FORMS = 3
"""Representations of a table: dense, rows, low rank."""

Values = Mapping[str, Float[Tensor, "users ..."]]


def sign(round: int, query: int) -> int:
    """Of what every user uploads to a query of a round."""
    return 1 - 2 * ((round + query) % 2)


def shortened(plan: PrivacyPlan, schema: Schema, rows: int, columns: int) -> dict[str, Block]:
    """The real blocks of a query, tables as `rows` x `columns` and vectors as long.

    All of them where each has a clip or a share of its own, else the last and the first of each weight.
    """
    real = {name: block for name, block in schema.items() if block.kind == "real"}
    clip = plan.mechanism.clip
    shared = any(block.share < 1 for block in real.values())
    if not shared and (clip is None or clip.per_block is None):
        first = {block.weight: name for name, block in reversed(real.items())}
        kept = {*first.values(), *list(real)[:1], *list(real)[-1:]}
        real = {name: block for name, block in real.items() if name in kept}
    return {
        name: replace(block, shape=(rows, columns) if len(block.shape) > 1 else (rows * columns,))
        for name, block in real.items()
    }


def repeated(schema: Schema, slots: int) -> dict[str, Block]:
    """The same blocks with so many slots, one after another."""
    return {name: replace(block, shape=(slots * block.shape[0], *block.shape[1:])) for name, block in schema.items()}


@dataclass(frozen=True, slots=True, eq=False)
class PrescribedUploads:
    """What all users of a probe upload.

    Attributes:
        schemas: short blocks of every query of a round.
        values: of every query, for sign +1.
        slots: in a sum, where each user's values lie.
        forms: representation of each user's tables.
        n_slots: slots of a block; 1 where every upload is released by itself.
    """

    schemas: Sequence[Schema]
    values: Sequence[Values]
    slots: Int64[Tensor, " users"]
    forms: Int64[Tensor, " users"]
    n_slots: int

    @property
    def population(self) -> int:
        """Number of users."""
        return len(self.slots)

    @property
    def query_schemas(self) -> list[dict[str, Block]]:
        """Blocks of every query, all slots."""
        return [repeated(schema, self.n_slots) for schema in self.schemas]


class PrescribedClients(StatelessClients):
    """Clients of a probe: no data, no state, one step."""

    steps = frozenset({STEP})

    def __init__(self, uploads: PrescribedUploads) -> None:
        self.uploads = uploads

    def upload(self, call: Call, message: Message) -> ClientUpdates:
        """What the called users are told to send."""
        del message
        prescribed, parts = self.uploads, list[Part]()
        forms, slots = prescribed.forms[call.clients], prescribed.slots[call.clients]
        for name, block in call.schema.items():
            values = prescribed.values[call.query_id][name][call.clients] * sign(call.round, call.query_id)
            for form in sorted(set(forms.tolist())):
                owner = (forms == form).nonzero().squeeze(1)
                parts.append(_part(name, block, form, owner, values[owner], slots[owner]))
        return ClientUpdates(call.clients, call.schema, parts)


def _part(
    name: str,
    block: Block,
    form: int,
    owner: Int64[Tensor, " owners"],
    values: Float[Tensor, "owners ..."],
    slots: Int64[Tensor, " owners"],
) -> Part:
    """The values of some clients in one representation; vectors are always dense."""
    rows = values.shape[1]
    if form == 1 and values.dim() > 2:
        who, row = (values != 0).any(2).nonzero(as_tuple=True)
        return Rows(name, owner[who], slots[who] * rows + row, values[who, row])
    if form == 2 and values.dim() > 2:
        left, step = torch.zeros(len(owner), rows, block.shape[0]), torch.arange(rows)
        left[torch.arange(len(owner)).unsqueeze(1), step, slots.unsqueeze(1) * rows + step] = 1
        return LowRank(name, owner, left, values)
    if block.shape[0] == rows:
        return Dense(name, owner, values)
    whole = torch.zeros(len(owner), block.shape[0] // rows, *values.shape[1:])
    whole[torch.arange(len(owner)), slots] = values
    return Dense(name, owner, whole.flatten(1, 2))


def in_slots(values: Tensor, block: Block) -> Float64[Tensor, "units size"]:
    """A released block as one weighted row per upload, or per slot of a sum.

    Args:
        values: `[users, *shape]` of single uploads, or the repeated block of a sum.
        block: the short block.
    """
    return values.double().reshape(-1, block.size) * block.weight
