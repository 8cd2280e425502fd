"""A guard for any torch federation: what training uploads is clipped, noised and charged at the node, by the node.

    from privfed.guard import flower_mod

    app = ClientApp(mods=[flower_mod("local-gaussian:clip_norm=1,epsilon=8", rounds=20)])

`Guard` is the guard itself, which knows no framework; `flower_mod` makes a mod for Flower of it and `nvflare_filter` a
filter for NVFlare. Whatever a server says, a node that runs it

* refuses a message that it cannot bound, and one that its budget does not cover, before any data is touched;
* records the upload in a ledger of its own, and only then trains;
* replaces what training returns by the update, clipped to one joint L2 norm (or L1, for Laplace noise), with exact
  noise of fresh system randomness, and every number next to it by a constant;
* sends noise around zero where training fails, so that a failure says nothing.

Epsilon is about everything that the node trains on, together: who hosts many people protects each of them at least as
well. It counts on nobody else: how many other nodes there are is the server's word.
"""

from importlib import import_module
from typing import Any

from privfed.guard.guard import Guard

__all__ = ["Guard", "flower_mod", "nvflare_filter"]  # noqa: F822, RUF100 (loaded by __getattr__)

_EXTRAS = {"flower_mod": ("flower", "flwr"), "nvflare_filter": ("nvflare", "nvflare")}


def __getattr__(name: str) -> Any:
    """What needs a framework, from the module that imports it."""
    if name not in _EXTRAS:
        raise AttributeError(f"privfed.guard has no {name!r}: it has {', '.join(__all__)}")
    module, package = _EXTRAS[name]
    try:
        return getattr(import_module(f"privfed.guard.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(f"{name} guards {package}, which is not installed: pip install {package}") from error
