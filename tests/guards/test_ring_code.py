"""Ring words of many clients at once: the sum that an accelerator makes is what single words add up to."""

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.guards.ring_code import RingCode
from privfed.privacy.mechanisms.secure_sum import SecureSum
from secure_agg.errors import ConfigurationError

SCHEMA = {
    "items": Block((5, 3)),
    "tier": Block((7,), weight=0.5),
    "counts": Block((4,), kind="integer", bound=1000),
}


def uploads(clients: int, scale: float) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    real = {name: torch.randn(clients, *SCHEMA[name].shape, generator=draw) * scale for name in ("items", "tier")}
    return real | {"counts": torch.randint(-1000, 1001, (clients, 4), generator=draw)}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("scale", [0.01, 0.2, 5.0])
def test_steps_add_up_to_the_words(bits: int, scale: float) -> None:
    code = RingCode(SecureSum(clip_norm=1.0, bits=bits), SCHEMA, 40)
    sent = uploads(40, scale)
    words = [code.encode(sent, place, b"") for place in range(40)]
    summed = sum(code.summed_steps({name: values[some] for name, values in sent.items()}) for some in _halves())
    np.testing.assert_array_equal(summed.numpy().astype(code.ring.dtype), code.ring.sum(words))


def _halves() -> list[slice]:
    return [slice(0, 13), slice(13, 40)]


def test_a_value_over_its_bound_is_refused() -> None:
    code = RingCode(SecureSum(clip_norm=1.0), SCHEMA, 40)
    sent = uploads(40, 0.1)
    sent["counts"][7, 2] = 1001
    with pytest.raises(ConfigurationError, match="1001"):
        code.summed_steps(sent)
    sent["counts"][7, 2] = 0
    sent["items"][3, 1, 1] = torch.nan
    with pytest.raises(ConfigurationError, match="nan"):
        code.summed_steps(sent)
