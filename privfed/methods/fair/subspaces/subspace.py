"""Nested hashed subspaces of one table (FAIR: Federated Averaging in Random Subspaces), as pure functions.

A table theta of n = rows * width values is trained through m_g < n shared values psi: theta = S_g psi, where row k of
the n x m_g matrix S_g holds one entry, the sign s_k, in column slot(k) = h(k) mod m_g. Nobody stores S_g: h is a keyed
hash of the element's number. With N the smallest multiple of 2^levels that is at least n, h maps into [0, N), and
level g >= 1 has m_g = N / 2^g slots. So m_g divides m_{g-1}, and then (h mod m_{g-1}) mod m_g = h mod m_g: every level
lies inside the one before it, which is what lets sums over devices of different sizes meet. Powers of two are not
needed for that, exact division is. Level 0 is the table itself (S_0 = I, m_0 = n): a device that can hold everything
trains the plain model, and federated averaging is what remains where all devices can.

With c_j = number of elements in slot j, S^T S = diag(c), hence for non-empty slots

    reduce   R = diag(c)^-1 S^T   the signed mean of a slot's elements (0 for an empty slot)
    recover  S                    every element takes its slot's value
    R S = I,   P = S R   the orthogonal projector,   |S psi|^2 = sum_j c_j psi_j^2.

Kinds of hash:

- `balanced`: h is a keyed bijection of [0, N), so every slot holds 2^g elements, less the at most 2^levels - 1 numbers
  of [n, N) that stand for no element. No slot is wasted (at N = n), and |S psi| = 2^(g/2) |psi|: `weight`.
- `signed`: an independent slot and sign for each element, as released with FAIR. About exp(-2^g) of the slots are
  empty, others hold many elements.
- `roast`: a run of `chunk` elements of a row keeps together, at an independent place (Desai et al., Random offset block
  embedding array, MLSys 2022). Reads memory in runs; whole rows coincide more often.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float, Int32, Int64, Num
from torch import Tensor

from privfed.methods.fair.subspaces.errors import SubspaceError
from privfed.methods.fair.subspaces.mixing import WIDEST, keys, mix, permute

Kind = Literal["balanced", "signed", "roast"]

_PIECE = 2**16
"""Elements that are hashed or added up at a time: what is in between stays in a processor's cache."""


@dataclass(frozen=True, slots=True)
class Subspace:
    """One level of one table; equal arguments give the same subspace everywhere.

    Attributes:
        rows: rows of the table.
        width: values of a row. Element e = row * width + column.
        level: g; 0 is the whole table, g >= 1 keeps about one value in 2^g.
        levels: the deepest level of this table. All levels that are to nest share it.
        seed: of the hash. Tables of one model take different seeds.
        kind: of the hash.
        chunk: elements that `roast` keeps together, a divisor of the width; 0 means the whole row.
        remember: keep the table's hash in memory for the life of the process, 4 bytes an element, shared by all levels,
            for the 16 tables used last. A device with less memory than that hashes what it needs when it needs it.

    Raises:
        SubspaceError: the arguments describe no subspace.
    """

    rows: int
    width: int
    level: int
    levels: int
    seed: int
    kind: Kind = "balanced"
    chunk: int = 0
    remember: bool = True

    def __post_init__(self) -> None:
        if self.rows < 1 or self.width < 1:
            raise SubspaceError(f"a table of {self.rows} x {self.width} values was given: both must be at least 1")
        if self.kind not in {"balanced", "signed", "roast"}:
            raise SubspaceError(f"a hash of kind {self.kind!r} was asked for: use balanced, signed or roast")
        if not 0 <= self.level <= self.levels:
            raise SubspaceError(
                f"level {self.level} of {self.levels} was asked for: use 0 to the deepest level, because only up to it "
                f"does the size of each level divide the size before"
            )
        if self.levels > WIDEST or self.span > 2**WIDEST:
            raise SubspaceError(
                f"a table of {self.rows} x {self.width} values with {self.levels} levels was given, but a hash reaches "
                f"2^{WIDEST} places: split the table or take fewer levels"
            )
        if self.chunk and self.kind != "roast":
            raise SubspaceError(f"chunks of {self.chunk} were given to a {self.kind} hash: only roast has chunks")
        if self.chunk < 0 or self.width % self.run:
            raise SubspaceError(
                f"chunks of {self.chunk} do not divide rows of {self.width}: give a divisor of the width"
            )
        if self.kind == "roast" and self.size < self.run:
            raise SubspaceError(
                f"level {self.level} has {self.size} slots, fewer than one chunk of {self.run}: use a smaller chunk or "
                f"level"
            )

    @property
    def span(self) -> int:
        """N: the hash maps elements into [0, N)."""
        step: int = 2**self.levels
        return -(-self.rows * self.width // step) * step

    @property
    def size(self) -> int:
        """m_g: how many values a device at this level keeps of the table."""
        return self.rows * self.width if self.level == 0 else self.span >> self.level

    @property
    def run(self) -> int:
        """Elements of a chunk."""
        return self.chunk or self.width

    @property
    def weight(self) -> float:
        """2^(g/2): |S psi| = weight |psi|.

        Exact for `balanced` where 2^levels divides the table, else an upper bound that a few slots stay below. For
        `signed` and `roast` it holds on average only: a vector on a crowded slot grows by the root of its count.
        """
        return 2 ** (self.level / 2)

    def slots(self, elements: Int64[Tensor, "*any"]) -> Int64[Tensor, "*any"]:
        """Slot of each element.

        Args:
            elements: row * width + column.
        """
        return elements if self.level == 0 else self._slots(self._hash_of(elements)).long()

    def signs(self, elements: Int64[Tensor, "*any"]) -> Float[Tensor, "*any"] | None:
        """-1 or 1 for each element, in torch's default dtype; None where all are 1."""
        if not self._signed:
            return None
        return _signs(self._hash_of(elements)).to(torch.get_default_dtype())

    def counts(self, device: torch.device | str = "cpu") -> Int64[Tensor, " slots"]:
        """c_j: how many elements lie in each slot."""
        if self.level == 0:
            return torch.ones(self.size, dtype=torch.int64, device=device)
        if self.kind == "balanced":
            no_element = permute(torch.arange(self.rows * self.width, self.span), keys(self.seed, self.kind), self.span)
            counts = torch.full((self.size,), 2**self.level, dtype=torch.int64)
            counts.scatter_add_(0, no_element % self.size, torch.full_like(no_element, -1))
            return counts.to(device)
        return torch.bincount(self._slots(self._hash(torch.device(device))), minlength=self.size)

    def reduce(self, theta: Float[Tensor, "*batch rows width"]) -> Float[Tensor, "*batch slots"]:
        """R theta: the signed mean of every slot, added up in float64; 0 for an empty slot.

        Raises:
            SubspaceError: theta is not of the table's shape, or not of real numbers.
        """
        if not theta.is_floating_point():
            raise SubspaceError(f"a table of {theta.dtype} was to be reduced: means need real numbers, decode it first")
        if theta.shape[-2:] != (self.rows, self.width):
            raise SubspaceError(
                f"a table of shape {tuple(theta.shape)} was given: this subspace is one of {self.rows} x {self.width}"
            )
        flat = theta.flatten(-2)
        if self.level == 0:
            return flat.clone()
        sums = theta.new_zeros(*flat.shape[:-1], self.size, dtype=torch.float64)
        hashed = self._hash(theta.device)
        for first in range(0, len(hashed), _PIECE):
            piece = hashed[first : first + _PIECE]
            values = flat[..., first : first + _PIECE].double()
            if self._signed:
                values = values * _signs(piece)
            sums.scatter_add_(-1, self._slots(piece).long().expand_as(values), values)
        return sums.div_(self.counts(theta.device).clamp_(min=1)).to(theta.dtype)

    def recover(self, psi: Num[Tensor, "*batch slots"]) -> Num[Tensor, "*batch rows width"]:
        """S psi: every element takes its slot's value and its own sign. Linear, so it commutes with sums.

        Whole numbers stay whole and wrap as their dtype does, so that words of a ring are recovered as they are.

        Raises:
            SubspaceError: psi has another number of slots.
        """
        check_size(psi, self)
        if self.level == 0:
            theta = psi.clone()
        else:
            hashed = self._hash(psi.device)
            theta = psi.index_select(-1, self._slots(hashed))
            if self._signed:
                theta *= _signs(hashed).to(theta.dtype)
        return theta.reshape(*psi.shape[:-1], self.rows, self.width)

    def project(self, theta: Float[Tensor, "*batch rows width"]) -> Float[Tensor, "*batch rows width"]:
        """P theta: the nearest table that lies in this subspace."""
        return self.recover(self.reduce(theta))

    def whole(self) -> "Subspace":
        """Level 0 of the same table, written one way: two subspaces nest where theirs are equal."""
        return replace(self, level=0, chunk=self.run if self.kind == "roast" else 0, remember=True)

    @property
    def _signed(self) -> bool:
        return self.level > 0 and self.kind == "signed"

    def _slots(self, hashed: Int32[Tensor, "*any"]) -> Int32[Tensor, "*any"]:
        """What is left of a hash modulo the number of slots; a hash -1 - h is that of an element with sign -1."""
        places = hashed ^ (hashed >> WIDEST) if self._signed else hashed
        return places % self.size

    def _hash(self, device: torch.device) -> Int32[Tensor, " elements"]:
        """Of every element of the table."""
        return _remembered(self.whole(), device) if self.remember else _hash_table(self, device)

    def _hash_of(self, elements: Int64[Tensor, "*any"]) -> Int32[Tensor, "*any"]:
        """Of some elements."""
        if self.remember:
            return self._hash(elements.device).index_select(0, elements.flatten()).view(elements.shape)
        return _hash(self, elements)


def check_size(psi: Tensor, subspace: Subspace) -> None:
    """Refuse values that are not those of a subspace.

    Raises:
        SubspaceError: psi has another number of slots.
    """
    if psi.shape[-1] != subspace.size:
        raise SubspaceError(
            f"{psi.shape[-1]} values were given for level {subspace.level} of a table of {subspace.rows} x "
            f"{subspace.width}: it has {subspace.size} slots"
        )


@lru_cache(maxsize=16)
def _remembered(table: Subspace, device: torch.device) -> Int32[Tensor, " elements"]:
    return _hash_table(table, device)


def _hash_table(table: Subspace, device: torch.device) -> Int32[Tensor, " elements"]:
    n = table.rows * table.width
    pieces = [_hash(table, torch.arange(first, min(n, first + _PIECE))) for first in range(0, n, _PIECE)]
    return torch.cat(pieces).to(device)


def _hash(table: Subspace, elements: Int64[Tensor, "*any"]) -> Int32[Tensor, "*any"]:
    """The hash h in [0, N), or -1 - h for an element with sign -1."""
    key = keys(table.seed, table.kind)
    if table.kind == "balanced":
        return permute(elements, key, table.span).int()
    if table.kind == "roast":
        chunks = elements.div(table.run, rounding_mode="floor")
        return (mix(chunks, key) + elements % table.run).remainder_(table.span).int()
    negative = mix(elements, keys(table.seed, "sign")) >> (WIDEST - 1)
    return (mix(elements, key) % table.span ^ -negative).int()


def _signs(hashed: Int32[Tensor, "*any"]) -> Int32[Tensor, "*any"]:
    return (hashed >> WIDEST) * 2 + 1
