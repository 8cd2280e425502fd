"""From one level of a table to another (collapsibility of FAIR's subspaces).

Between levels with m_small | m_big, S_small = S_big T with T[r, r mod m_small] = 1: a deeper table is a larger one
whose slots are tied. Elements keep their signs, so neither way needs them.
"""

from jaxtyping import Float, Num
from torch import Tensor

from privfed.methods.fair.subspaces.errors import SubspaceError
from privfed.methods.fair.subspaces.subspace import Subspace, check_size


def lift(psi: Num[Tensor, "*batch small"], small: Subspace, big: Subspace) -> Num[Tensor, "*batch big"]:
    """T psi, the same table in the basis of a larger subspace: recover_big(lift(psi)) = recover_small(psi).

    Args:
        psi: values in the basis of `small`.
        small: the deeper level.
        big: a level of the same table, no deeper than `small`.

    Raises:
        SubspaceError: the two do not nest, or psi is not of `small`.
    """
    _check_nested(small, big)
    check_size(psi, small)
    if big.level == 0:
        return small.recover(psi).flatten(-2)
    return psi.repeat(*[1] * (psi.ndim - 1), big.size // small.size)


def collapse(psi: Float[Tensor, "*batch big"], big: Subspace, small: Subspace) -> Float[Tensor, "*batch small"]:
    """Reduce further, added up in float64: what reduce_big gives becomes what reduce_small gives.

    Slots weigh as many elements as they hold. Their plain mean is another table wherever counts differ.

    Args:
        psi: values in the basis of `big`.
        big: the level that psi is of.
        small: a level of the same table, at least as deep.

    Raises:
        SubspaceError: the two do not nest, or psi is not of `big`.
    """
    _check_nested(small, big)
    check_size(psi, big)
    if big.level == 0:
        return small.reduce(psi.reshape(*psi.shape[:-1], big.rows, big.width))
    weighted = psi.double() * big.counts(psi.device)
    sums = weighted.reshape(*psi.shape[:-1], -1, small.size).sum(-2)
    return sums.div_(small.counts(psi.device).clamp_(min=1)).to(psi.dtype)


def _check_nested(small: Subspace, big: Subspace) -> None:
    if small.whole() != big.whole():
        raise SubspaceError(f"{small} and {big} are not of one table and hash: only levels of one table nest")
    if small.level < big.level:
        raise SubspaceError(
            f"level {small.level} was given as the smaller subspace and level {big.level} as the larger one: the "
            f"deeper level is the smaller subspace"
        )
