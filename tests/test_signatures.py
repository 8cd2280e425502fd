"""Wrong types and wrong shapes are caught in every signature while the tests run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float32
from torch import Tensor

from privfed.contracts import Block
from tests.signatures import checked, decorated

with_checks: Callable[..., Any] = decorated(typechecker=checked)


@with_checks
def doubled(number: int) -> int:
    return 2 * number


@with_checks
def joined(left: Float32[Tensor, "n d"], right: Float32[Tensor, "n d"]) -> Float32[Tensor, "2*n d"]:
    return torch.cat([left, right])


@with_checks
@dataclass
class Named:
    name: str


def test_a_wrong_type_is_caught_with_and_without_shapes() -> None:
    assert doubled(2) == 4
    with pytest.raises(BeartypeCallHintViolation):
        doubled("2")
    with pytest.raises(BeartypeCallHintViolation):
        Named(3)
    with pytest.raises(jaxtyping.TypeCheckError):
        joined(torch.zeros(2, 3), torch.zeros(3, 3))


def test_a_name_in_quotes_that_only_a_type_checker_knows_is_let_be() -> None:
    @with_checks
    def first(numbers: list["Unknown"]) -> int:
        return numbers[0]

    assert first([1]) == 1


@pytest.mark.usefixtures("unchecked")
def test_nothing_is_caught_where_checks_are_off() -> None:
    assert doubled("2") == "22"
    assert Named(3).name == 3


def test_the_library_itself_is_checked() -> None:
    with pytest.raises((BeartypeCallHintViolation, jaxtyping.TypeCheckError)):
        Block("three")
