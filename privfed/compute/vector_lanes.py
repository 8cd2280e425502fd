# mypy: disable-error-code="no-untyped-call"
"""`Lanes`: `LANES` numbers that a compiled function computes together, on any processor to the same bits.

Compilers turn loops into vector instructions where they see fit; a loop over many short arrays they leave alone. Here
a compiled function says itself what stays in registers. A sum over lanes is taken in halves, in an order that does not
depend on the width of the vector unit, and products are rounded before they are added, though some could fuse both.

For use inside of functions that are `compiled`, and nowhere else.
"""

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable
from numba.np.arrayobj import make_array

LANES = 16

_LOG2 = Fraction("0.69314718055994530941723212145817657")

_TERMS = {32: 8, 64: 14}
"""Terms of the exponential's series in |x| <= log(2) / 2, after which a term is below half a unit in the last place."""

_BITS = {32: (23, 127, 88.0, -87.0), 64: (52, 1023, 709.0, -708.0)}
"""Bits of the mantissa, bias of the exponent, and between which numbers exp is a normal number."""


class LanesType(types.Type):
    """The compiler's type of `LANES` numbers.

    Args:
        dtype: of each.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: LanesType) -> None:
        number = ir.FloatType() if lanes.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, lanes, ir.VectorType(number, LANES))


def _generated(function: Callable[..., Any]) -> Any:
    """A function that compiled ones call, written in the compiler's own instructions."""
    return intrinsic(function)


def _pointer(context: Any, builder: Any, array: Any, value: Any, index: Any) -> Any:
    place = cgutils.unpack_tuple(builder, index)
    return cgutils.get_item_pointer(
        context, builder, array, make_array(array)(context, builder, value), place, wraparound=False
    )


def _shuffled(builder: Any, value: Any, lanes: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)


def _same(builder: Any, number: Any) -> Any:
    vector = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    return _shuffled(builder, builder.insert_element(vector, number, ir.IntType(32)(0)), [0] * LANES)


@_generated
def load(_: Any, array: Any, index: Any) -> Any:
    """`LANES` numbers of an array, from an index (a tuple) on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1])
        vector = context.get_value_type(signature.return_type)
        return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=array.dtype.bitwidth // 8)

    return LanesType(array.dtype)(array, index), generate


@_generated
def store(_: Any, array: Any, index: Any, value: Any) -> Any:
    """Write them to an array, from an index (a tuple) on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        pointer = _pointer(context, builder, array, args[0], args[1])
        builder.store(args[2], builder.bitcast(pointer, args[2].type.as_pointer()), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@_generated
def widened(_: Any, value: Any) -> Any:
    """The same numbers in float64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(args[0], context.get_value_type(signature.return_type))

    return LanesType(types.float64)(value), generate


@_generated
def spread(_: Any, array: Any, index: Any) -> Any:
    """An array's number at an index, in every lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        return _same(builder, builder.load(_pointer(context, builder, array, args[0], args[1])))

    return LanesType(array.dtype)(array, index), generate


@_generated
def filled(_: Any, number: Any) -> Any:
    """A number, in every lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return _same(builder, args[0])

    return LanesType(number)(number), generate


@_generated
def total(_: Any, value: Any) -> Any:
    """The sum of all lanes: of halves that are added, until one number is left."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        left, width = args[0], LANES
        while width > 1:
            width //= 2
            lower, upper = range(width), range(width, 2 * width)
            left = builder.fadd(_shuffled(builder, left, lower), _shuffled(builder, left, upper))
        return builder.extract_element(left, ir.IntType(32)(0))

    return value.dtype(value), generate


@_generated
def exp(_: Any, value: Any) -> Any:
    """The exponential of every lane, to about two units in the last place; NaN stays NaN."""
    bits = value.dtype.bitwidth

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        whole = ir.VectorType(ir.IntType(bits), LANES)
        mantissa, bias, most, least = _BITS[bits]

        def number(x: float) -> Any:
            return ir.Constant(vector, [float(np.dtype(f"f{bits // 8}").type(x))] * LANES)

        # exp(x) = 2^k exp(x - k log 2) with k = x / log 2 rounded. A comparison with NaN is false, so NaN stays.
        x = args[0]
        x = builder.select(builder.fcmp_ordered(">", x, number(most)), number(most), x)
        x = builder.select(builder.fcmp_ordered("<", x, number(least)), number(least), x)
        # Beside so large a number, nothing is left of a fraction.
        large = number(1.5 * 2**mantissa)
        k = builder.fsub(builder.fadd(builder.fmul(x, number(float(1 / _LOG2))), large), large)
        # log 2 in two parts: the first has so few bits that its product with k is exact.
        high = math.floor(_LOG2 * 2**9) / 2**9
        rest = builder.fsub(x, builder.fmul(k, number(high)))
        rest = builder.fsub(rest, builder.fmul(k, number(float(_LOG2 - Fraction(high)))))
        series = number(1 / math.factorial(_TERMS[bits] - 1))
        for term in range(_TERMS[bits] - 2, -1, -1):
            series = builder.fadd(builder.fmul(series, rest), number(1 / math.factorial(term)))
        # What NaN is as a whole number is not defined.
        k = builder.select(builder.fcmp_ordered("ord", k, k), k, number(0))
        shifted = builder.add(builder.fptosi(k, whole), ir.Constant(whole, [bias] * LANES))
        power = builder.shl(shifted, ir.Constant(whole, [mantissa] * LANES))
        return builder.fmul(series, builder.bitcast(power, vector))

    return value(value), generate


def _calculates(operation: Any, instruction: str) -> None:
    def typed(context: Any) -> Any:
        del context
        return lambda a, b: a if isinstance(a, LanesType) and a == b else None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return getattr(builder, instruction)(*args)

    type_callable(operation)(typed)
    lower_builtin(operation, LanesType, LanesType)(generate)


_calculates(operator.add, "fadd")
_calculates(operator.sub, "fsub")
_calculates(operator.mul, "fmul")
_calculates(operator.truediv, "fdiv")
