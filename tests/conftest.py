"""Shared set-up."""
import sys
from types import ModuleType

import torch
from beartype import beartype
from beartype.roar import BeartypeDecorHintPep673Exception
from jaxtyping import install_import_hook


def check(function):
    try:
        return beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function

m = ModuleType("privfed_runtime_checks")
m.check = check
sys.modules[m.__name__] = m

install_import_hook(["privfed", "attacks"], "privfed_runtime_checks.check")
torch.set_num_threads(1)
