"""Local optimisers against torch's, and their arena."""

import pytest
import torch

from privfed.methods.hetefedrec.local_adam import ALIGNMENT, LocalAdam, arena, local_optimiser


@pytest.mark.parametrize(("kind", "torchs"), [("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)])
def test_steps_equal_those_of_torch(kind, torchs):
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(4, 16, generator=rng)
    parameter = values.clone().double().requires_grad_()
    theirs, ours = torchs([parameter], lr=0.03), local_optimiser(kind, values, 0.03)
    for _ in range(6):
        gradient = torch.randn(4, 16, generator=rng)
        parameter.grad = gradient.double()
        theirs.step()
        ours.step_(gradient)
    torch.testing.assert_close(values.double(), parameter.detach(), rtol=1e-5, atol=1e-6)


def test_what_has_no_gradient_stays_exactly_where_it_is():
    values = torch.ones(32)
    step = LocalAdam(values, 0.1)
    gradient = torch.zeros(32)
    gradient[3] = 1e-5
    for _ in range(3):
        step.step_(gradient)
    assert bool((values[torch.arange(32) != 3] == 1).all())
    assert float(values[3]) == pytest.approx(0.7, abs=1e-3)


def test_an_arena_keeps_every_tensor_at_an_aligned_place_of_its_own():
    flat, views = arena({"a": (3, 5), "b": (16,), "c": (2, 2)})
    assert flat.shape == (3 * ALIGNMENT,)
    for number, (name, shape) in enumerate({"a": (3, 5), "b": (16,), "c": (2, 2)}.items(), 1):
        assert views[name].shape == shape
        assert views[name].storage_offset() % ALIGNMENT == 0
        views[name].fill_(number)
    assert flat.long().bincount().tolist() == [1 + 12, 15, 16, 4]
