"""Proofs that sums over shared vectors are right: fully linear, as short as the square root of their length.

A prover holds matrices u and v of `calls` rows and `width` columns, which two verifiers hold in additive shares. It
sends them, in shares, the sum of G(u_j, v_j) over every row, and convinces them that these are right. G is a square, a
product, or u_j times the polynomial that is zero at the digits 0 .. 15 and nowhere else:

- column j of u, with a random element in front, is the polynomial f_j at the P-th roots of unity (P > calls a power of
  two, zeros behind); likewise g_j of v
- h = sum_j G(f_j, g_j), of degree below Q, is sent by its values at the Q-th roots (Q a multiple of P), among which are
  the sums over rows
- the verifiers draw a point t that the prover cannot know, compute shares of f_j(t), g_j(t) and h(t), which are linear
  in what they hold, open them and check h(t) = sum_j G(f_j(t), g_j(t))

Soundness: for wrong sums, both sides are different polynomials of degree below Q, and agree at t with probability below
Q / (p - Q). Zero knowledge: at a t that is no root of unity, the random elements in front make all f_j(t) and g_j(t)
independent and uniform, and h(t) follows from them.

Sources: Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai, "Zero-Knowledge Proofs on Secret-Shared Data via Fully Linear
PCPs" (CRYPTO 2019), the proof for a parallel sum of products; draft-irtf-cfrg-vdaf for its use in Prio3.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from secure_agg.two_server import field
from secure_agg.two_server.field import Elements

Kind = Literal["squares", "products", "digits"]

BASE: Final = 16
"""Digits are 0 .. 15."""

_DEGREES: Final = {"squares": 2, "products": 2, "digits": 1 + BASE}


@dataclass(frozen=True, slots=True)
class ProductProof:
    """Sizes of one proof: of the squares of one vector, or of products, or of weighted digits, of two.

    Attributes:
        length: number of elements of a vector, filled with zeros to `calls` rows of `width`.
        kind: G; of digits the first vector has the weights.
        order: P, the number of points at which a column is fixed.
        width: elements in a row.
    """

    length: int
    kind: Kind
    order: int
    width: int

    @classmethod
    def of_length(cls, length: int, kind: Kind) -> "ProductProof":
        """The shortest proof for vectors of this length."""
        orders = (1 << k for k in range(1, 2 + length.bit_length()))
        options = (cls(length, kind, order, math.ceil(length / (order - 1))) for order in orders)
        return min(options, key=lambda one: one.size)

    @property
    def wires(self) -> int:
        """Columns of u, and of v where it is another."""
        return self.width if self.kind == "squares" else 2 * self.width

    @property
    def points(self) -> int:
        """Q: the number of values of h."""
        return 1 << (_DEGREES[self.kind] * (self.order - 1)).bit_length()

    @property
    def size(self) -> int:
        """Elements of a proof: what stands in front of the columns, then the values of h."""
        return self.wires + self.points

    @property
    def revealed(self) -> int:
        """Elements that each verifier opens."""
        return self.wires + 1

    def prove(self, vectors: list[Elements], front: Elements) -> Elements:
        """The proof, `[size]`, given random elements `[wires]`.

        Args:
            vectors: one of `[length]` for squares, else two.
            front: fresh and uniform.
        """
        columns, stride = self._columns(vectors, front), self.points // self.order  # [order, wires]
        values = np.empty((self.order, stride), np.uint64)
        values[:, 0] = self._sums(columns)
        # Values at w^(s + stride k), w of order Q, are those of the polynomial of w^s x at the P-th roots.
        exponents = np.outer(np.arange(self.order), np.arange(1, stride)) % self.points
        coefficients = field.interpolate(columns)[:, None]
        turned = field.multiply(coefficients, field.roots(self.points)[exponents][..., None]).reshape(self.order, -1)
        values[:, 1:] = self._sums(field.evaluate(turned).reshape(-1, self.wires)).reshape(self.order, -1)
        return np.concatenate([front, values.reshape(-1)])

    def query(self, vectors: list[Elements], proof: Elements, point: int) -> tuple[Elements, Elements]:
        """One verifier's shares: of all sums over rows together, and of what is revealed, `[revealed]`.

        Args:
            vectors: its shares of the vectors.
            proof: its share of the proof.
            point: t, no root of unity of order Q.
        """
        columns = self._columns(vectors, proof[: self.wires])
        values = proof[self.wires :]
        at_point = field.dot(columns, field.lagrange_weights(self.order, point)[:, None], axis=0)
        value = field.dot(values, field.lagrange_weights(self.points, point))
        rows, stride = math.ceil(self.length / self.width), self.points // self.order
        return field.total(values[stride : stride * rows + 1 : stride]), np.concatenate([at_point, value[None]])

    def holds(self, revealed: Elements) -> bool:
        """Whether what was revealed, `[revealed]`, is what a right proof opens."""
        return bool(self._sums(revealed[None, :-1])[0] == revealed[-1])

    def _columns(self, vectors: list[Elements], front: Elements) -> Elements:
        """`[order, wires]`: the front, the rows, zeros."""
        columns = np.zeros((len(vectors), self.order, self.width), np.uint64)
        for place, vector in enumerate(vectors):
            columns[place, 1:].reshape(-1)[: self.length] = vector
        columns[:, 0] = front.reshape(len(vectors), self.width)
        return np.concatenate(list(columns), axis=1)

    def _sums(self, rows: Elements) -> Elements:
        """Sums of G over the rows: `[n, wires]` to `[n]`."""
        if self.kind == "squares":
            return field.dot(rows, rows)
        first, second = rows[:, : self.width], rows[:, self.width :]
        if self.kind == "products":
            return field.dot(first, second)
        vanishing = second
        for digit in range(1, BASE):
            vanishing = field.multiply(vanishing, field.subtract(second, np.full_like(second, digit)))
        return field.dot(first, vanishing)
