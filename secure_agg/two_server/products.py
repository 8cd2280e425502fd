"""Proofs that shared inner products are right: fully linear, as short as the square root of their length.

A prover holds matrices u and v of `calls` rows and `width` columns, which two verifiers hold in additive shares. It
sends them, in shares, the inner product of every row, and convinces them that these are right:

- column j of u, with a random element in front, is the polynomial f_j at the P-th roots of unity (P > calls a power of
  two, zeros behind); likewise g_j of v
- h = sum_j f_j g_j, of degree below 2P, is sent by its values at the 2P-th roots, every second of which is an inner
  product
- the verifiers draw a point t that the prover cannot know, compute shares of f_j(t), g_j(t) and h(t), which are linear
  in what they hold, open them and check h(t) = sum_j f_j(t) g_j(t)

Soundness: for wrong inner products, both sides are different polynomials of degree below 2P, and agree at t with
probability below 2P / (p - 2P). Zero knowledge: at a t that is no root of unity, the random elements in front make all
f_j(t) and g_j(t) independent and uniform, and h(t) is their inner product.

Sources: Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai, "Zero-Knowledge Proofs on Secret-Shared Data via Fully Linear
PCPs" (CRYPTO 2019), the proof for a parallel sum of products; draft-irtf-cfrg-vdaf for its use in Prio3.
"""

import math
from dataclasses import dataclass

import numpy as np

from secure_agg.two_server import field
from secure_agg.two_server.field import Elements


@dataclass(frozen=True, slots=True)
class ProductProof:
    """Sizes of one proof: of the squares of one vector, or of the products of two.

    Attributes:
        length: number of elements of a vector, filled with zeros to `calls` rows of `width`.
        squares: whether both vectors are the same.
        order: P, the number of points at which a column is fixed.
        width: elements in a row.
    """

    length: int
    squares: bool
    order: int
    width: int

    @classmethod
    def of_length(cls, length: int, *, squares: bool) -> "ProductProof":
        """The shortest proof for vectors of this length."""
        wires = 1 if squares else 2
        options = ((1 << k, math.ceil(length / ((1 << k) - 1))) for k in range(1, 2 + length.bit_length()))
        order, width = min(options, key=lambda one: wires * one[1] + 2 * one[0])
        return cls(length, squares, order, width)

    @property
    def wires(self) -> int:
        """Columns of u, and of v where it is another."""
        return self.width if self.squares else 2 * self.width

    @property
    def size(self) -> int:
        """Elements of a proof: what stands in front of the columns, then the values of h."""
        return self.wires + 2 * self.order

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
        columns = self._columns(vectors, front)  # [order, wires]
        coefficients = field.interpolate(columns)
        turned = field.multiply(coefficients, field.roots(2 * self.order)[: self.order, None])
        values = np.empty(2 * self.order, np.uint64)
        values[::2], values[1::2] = self._products(columns), self._products(field.evaluate(turned))
        return np.concatenate([front, values])

    def query(self, vectors: list[Elements], proof: Elements, point: int) -> tuple[Elements, Elements]:
        """One verifier's shares: of all inner products together, and of what is revealed, `[revealed]`.

        Args:
            vectors: its shares of the vectors.
            proof: its share of the proof.
            point: t, no root of unity of order 2P.
        """
        columns = self._columns(vectors, proof[: self.wires])
        values = proof[self.wires :]
        at_point = field.dot(columns, field.lagrange_weights(self.order, point)[:, None], axis=0)
        product = field.dot(values, field.lagrange_weights(2 * self.order, point))
        rows = math.ceil(self.length / self.width)
        return field.total(values[2 : 2 * rows + 1 : 2]), np.concatenate([at_point, product[None]])

    def holds(self, revealed: Elements) -> bool:
        """Whether what was revealed, `[revealed]`, is what a right proof opens."""
        return bool(self._products(revealed[None, :-1])[0] == revealed[-1])

    def _columns(self, vectors: list[Elements], front: Elements) -> Elements:
        """`[order, wires]`: the front, the rows, zeros."""
        columns = np.zeros((len(vectors), self.order, self.width), np.uint64)
        for place, vector in enumerate(vectors):
            columns[place, 1:].reshape(-1)[: self.length] = vector
        columns[:, 0] = front.reshape(len(vectors), self.width)
        return np.concatenate(list(columns), axis=1)

    def _products(self, rows: Elements) -> Elements:
        """Inner products of the rows: `[n, wires]` to `[n]`."""
        return field.dot(rows, rows) if self.squares else field.dot(rows[:, : self.width], rows[:, self.width :])
