"""Server steps equal torch's optimisers on minus the mean update, and continue bit for bit from a saved state."""

import pytest
import torch

from privfed.methods.shared.server_optimiser import ServerOptimiser

TORCH = {
    "sgd": lambda p, lr, decay: torch.optim.SGD(p, lr=lr, weight_decay=decay),
    "momentum": lambda p, lr, decay: torch.optim.SGD(p, lr=lr, weight_decay=decay, momentum=0.9),
    "adam": lambda p, lr, decay: torch.optim.Adam(p, lr=lr, weight_decay=decay),
}


def updates(step):
    generator = torch.Generator().manual_seed(step)
    return {"w": torch.randn(4, 3, generator=generator), "b": torch.randn(3, generator=generator)}


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", TORCH)
def test_steps_equal_those_of_torch(kind, decay):
    found = updates(99)
    wanted = {name: value.clone().requires_grad_() for name, value in found.items()}
    ours, theirs = ServerOptimiser(kind, 0.05, decay), TORCH[kind](list(wanted.values()), 0.05, decay)
    for step in range(5):
        found = ours.step(found, updates(step))
        for name, value in updates(step).items():
            wanted[name].grad = -value
        theirs.step()
    for name, value in found.items():
        torch.testing.assert_close(value, wanted[name].detach(), rtol=1e-5, atol=1e-6)


def test_plain_steps_of_length_one_add_the_mean_update():
    start = updates(1)
    new = ServerOptimiser("sgd", 1.0).step(start, updates(2))
    for name in start:
        torch.testing.assert_close(new[name], start[name] + updates(2)[name])


@pytest.mark.parametrize("kind", TORCH)
def test_a_loaded_optimiser_continues_bit_for_bit(kind):
    one, p = ServerOptimiser(kind, 0.05, 0.01), updates(0)
    for step in range(3):
        p = one.step(p, updates(step))
    other = ServerOptimiser(kind, 0.05, 0.01)
    other.load(one.state())
    for step in range(3, 6):
        a, b = one.step(p, updates(step)), other.step(p, updates(step))
        assert all(a[name].equal(b[name]) for name in a)
        p = a


@pytest.mark.parametrize("kind", TORCH)
def test_a_step_leaves_its_inputs_and_saved_states_alone(kind):
    optimiser, p, u = ServerOptimiser(kind, 0.05, 0.01), updates(0), updates(1)
    optimiser.step(p, u)
    saved = optimiser.state()
    kept = {name: value.clone() for name, value in saved.items()}
    optimiser.step(p, u)
    assert all(p[name].equal(value) for name, value in updates(0).items())
    assert all(u[name].equal(value) for name, value in updates(1).items())
    assert all(saved[name].equal(value) for name, value in kept.items())
