"""Where tensors are made, what the pretended device refuses and counts, and what a device changes in a digest."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from privfed.compute.devices import HOST, DeviceError, computing_on, here, moved, on_host, placed, usable
from privfed.setup.config import ExperimentConfig


def test_the_processor_copies_nothing() -> None:
    array = np.arange(3.0)
    before = torch.are_deterministic_algorithms_enabled()
    with computing_on(usable("cpu")):
        tensor = placed(array)
        assert here() == HOST
        assert moved(tensor) is tensor
        assert torch.are_deterministic_algorithms_enabled() == before
        on_host(tensor)[0] = 7
    assert array[0] == 7


@pytest.mark.parametrize("name", ["nonsense", "meta", "mps", "xla", "cuda:99", ""])
def test_unusable_devices_are_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(DeviceError, match=r"cannot be used here \(.*\): choose cpu") as refused:
        usable(name)
    assert len(str(refused.value)) < 250


def test_tensors_are_made_where_the_context_says(pretended: Callable) -> None:
    with pretended(), computing_on(usable("pretend")):
        assert {t.device.type for t in (torch.zeros(2), placed(np.arange(2)), moved(torch.ones(2, device="cpu")))} == {
            "pretend"
        }
        assert torch.are_deterministic_algorithms_enabled()
        with computing_on(HOST):
            assert torch.zeros(2).device == placed(np.arange(2)).device == HOST
        assert here().type == "pretend"
        np.testing.assert_array_equal(on_host(torch.arange(3)), [0, 1, 2])
    assert here() == HOST
    assert torch.zeros(1).device == HOST
    assert not torch.are_deterministic_algorithms_enabled()


def test_determinism_is_a_setting(pretended: Callable) -> None:
    with pretended(), computing_on(usable("pretend"), deterministic=False):
        torch.ones(3).cumsum(0)
        assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (lambda x: x + torch.ones(3, device="cpu"), "same device"),
        (lambda x: torch.ones(3, device="cpu")[x.long()], "same device"),
        (lambda x: x.numpy(), "can't convert"),
        (np.asarray, "can't convert"),
        (lambda x: x.long() @ x.long(), "no kernel"),
        (lambda x: x.cumsum(0), "deterministic"),
        (lambda x: torch.bincount(x.long(), x), "deterministic"),
    ],
)
def test_the_pretended_device_refuses_what_cuda_refuses(
    pretended: Callable, operation: Callable[[Any], Any], told: str
) -> None:
    with (
        pretended(),
        computing_on(usable("pretend")),
        pytest.raises((RuntimeError, TypeError), match=told),
    ):
        operation(torch.ones(3))


def test_it_counts_what_the_host_waits_for(pretended: Callable) -> None:
    with pretended() as device, computing_on(torch.device("pretend")):
        x = torch.arange(4).float()
        device.counts.clear()
        x.add_(1).sum()
        assert device.counts == {"launches": 2}
        device.counts.clear()
        assert float(x.max()) == 4
        assert x[x > 2].tolist() == [3, 4]
        x.add_(placed(np.ones(4, np.float32)))
        assert (device.counts["waits"], device.counts["to_host"], device.counts["to_device"]) == (2, 1, 1)
        assert x[torch.tensor([0], device="cpu")].tolist() == [2]


def test_the_processor_is_no_part_of_a_digest() -> None:
    config = ExperimentConfig(seed=3)
    fields = config.model_dump(mode="json")
    for silent in ("device", "deterministic", "boost", "control", "evaluation"):
        del fields[silent]
    del fields["protocol"]["precision"]
    before = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    assert ExperimentConfig.model_validate(fields) == config
    assert config.digest() == before == config.model_copy(update={"deterministic": False}).digest()
    elsewhere = config.model_copy(update={"device": "cuda"})
    assert len({before, elsewhere.digest(), elsewhere.model_copy(update={"deterministic": False}).digest()}) == 3
