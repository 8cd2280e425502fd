"""Modules and optimiser steps as mechanisms: what leaves is the state after a batch.

Everything is made anew for each call, so that no state is carried from one trial to the next. Nothing here imports
torch: what the caller makes has the methods that are needed.
"""

import copy
from collections.abc import Callable
from typing import Any

from attacks.mechanism.release import Release


def module_release(module: Any, *, outputs: bool = False) -> Release:
    """Mechanism that releases a module's state after one forward pass in training mode.

    Args:
        module: The module; every call takes a copy of it as it is now.
        outputs: Whether what the module returns is released too.
    """
    original = copy.deepcopy(module)

    def release(inputs: Any, generator: Any) -> dict[str, Any]:
        del generator
        fresh = copy.deepcopy(original)
        fresh.train()
        returned = fresh(inputs)
        released = {"state": dict(fresh.state_dict())}
        return released | {"outputs": returned} if outputs else released

    return release


def step_release(make: Callable[[], tuple[Any, Any]], loss: Callable[[Any, Any], Any]) -> Release:
    """Mechanism that releases a module's state after one step of an optimiser on a batch.

    Args:
        make: Makes a module and an optimiser of its parameters, anew for each call; all begin with the first one's
            weights, so that a random start is no noise.
        loss: (module, inputs) -> loss that the step lowers.
    """
    start = copy.deepcopy(make()[0].state_dict())

    def release(inputs: Any, generator: Any) -> dict[str, Any]:
        del generator
        module, optimiser = make()
        module.load_state_dict(start)
        module.train()
        optimiser.zero_grad()
        loss(module, inputs).backward()
        optimiser.step()
        return dict(module.state_dict())

    return release
