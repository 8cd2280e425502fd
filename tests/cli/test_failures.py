"""What a person is told where something fails that privfed did not raise."""

import numpy as np
import pytest
import torch

from privfed.cli.failures import BAD_INPUT, FAULT, answer

ON_A_GPU = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB"


def failure_of(call: object) -> Exception:
    try:
        call()  # type: ignore[operator]
    except Exception as error:  # whatever a library raises
        return error
    raise AssertionError("nothing failed")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (failure_of(lambda: torch.zeros(10**14)), "not enough memory (372,529.0 GiB more were asked for): train fewer"),
        (failure_of(lambda: np.zeros(10**14)), "not enough memory (728 TiB more were asked for): train fewer"),
        (torch.OutOfMemoryError(ON_A_GPU), "not enough memory on the GPU (20.00 GiB more were asked for): train fewer"),
        (torch.OutOfMemoryError("HIP"), "not enough memory on the GPU: train fewer"),
        (MemoryError(), "not enough memory: train fewer"),
        (failure_of(lambda: np.zeros(10**25)), "not enough memory: train fewer"),
        (failure_of(lambda: float(10**400)), "too large to compute with (int too large to convert to float): give a"),
        (failure_of(lambda: 1e300**2), "too large to compute with"),
    ],
)
def test_too_little_memory_and_too_large_numbers_are_one_sentence(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(error) == BAD_INPUT
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


def test_any_other_failure_of_torch_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(failure_of(lambda: torch.zeros(2) @ torch.zeros(3))) == FAULT
    assert "Traceback" in capsys.readouterr().err
