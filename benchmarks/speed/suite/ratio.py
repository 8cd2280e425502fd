"""Two cases in turns, in one process: what one costs beside the other, whatever the machine does meanwhile.

    python -m benchmarks.speed.suite.ratio '{"method": ...}' '{"method": ...}'

prints one line of JSON. After a round of each that fills caches, the two take turns, as many as fit into `seconds` of
CPU of the first case, the second with as many rounds as take it as long; the ratio is that of their typical rounds.
Then one more round of the first case counts its `steps`, functions that stand for parts of it.

With `"noise": "floating point"` a case draws the normal variables of its privacy as it did before they were exact to
the last bit: by Box and Muller in float32, from the same words of the cipher. Such noise hides nothing for certain and
is here for its cost alone.
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.speed.suite.case import ENOUGH, ROUNDS, SECONDS, Running, configured, limited, parts_of, typical
from privfed.federation import Purpose, Streams


def in_floating_point(
    self: Streams, purpose: Purpose, round: int, query_id: int, users: Sequence[int], count: int, ratio: Any
) -> Tensor:
    """What `Streams.normal_steps` draws, without its exactness."""
    half = -(-count // 2)
    u = self.uniform(purpose, round, query_id, users, 2 * half)
    radius = u[:, :half].log().mul_(-2).sqrt_()
    angle = u[:, half:].mul(2 * math.pi)
    unit = torch.cat([radius * angle.cos(), radius * angle.sin()], 1)[:, :count].float()
    return unit.double().mul_(ratio if isinstance(ratio, float) else torch.from_numpy(ratio)).round_()


@contextmanager
def drawing(case: dict[str, Any]) -> Iterator[None]:
    """Draw as the case says."""
    if case.get("noise") == "floating point":
        with mock.patch.object(Streams, "normal_steps", in_floating_point):
            yield
    else:
        yield


def steps_of(round_of: Callable[[], object], steps: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """CPU-seconds and calls of some functions, `module:name`, while a round is computed."""
    spent = {step: {"cpu_s": 0.0, "calls": 0} for step in steps}

    def timed(function: Callable[..., Any], row: dict[str, float]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return function(*args, **options)
            finally:
                row["cpu_s"] += time.process_time() - started
                row["calls"] += 1

        return wrapper

    with ExitStack() as patches:
        for step, place in steps.items():
            module, _, path = place.partition(":")
            *owners, name = path.split(".")
            owner: Any = importlib.import_module(module)
            owner = attrgetter(".".join(owners))(owner) if owners else owner
            patches.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name), spent[step])))
        round_of()
    return spent


def measured(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """CPU-seconds of a round of each, and their ratio."""
    running = [Running(configured(case), parts_of(case["data"])) for case in cases]
    spent: list[list[float]] = [[] for _ in cases]
    for turn in range(1 + ROUNDS):
        if turn > 1 and sum(spent[0][1:]) > cases[0].get("seconds", SECONDS):
            break
        for case, one, rounds in zip(cases, running, spent, strict=True):
            with drawing(case):
                # The other case goes on until it has taken as long: the clock may count in steps of 4 ms.
                while len(rounds) <= turn or sum(rounds[1:]) < min(ENOUGH, sum(spent[0][1:])):
                    rounds.append(one.round()["cpu_s"])
    ours, beside = (typical(rounds[1:]) for rounds in spent)
    row: dict[str, Any] = {"cpu_s": ours, "beside_cpu_s": beside, "ratio": ours / beside, "rounds": len(spent[0]) - 1}
    if steps := cases[0].get("steps"):
        row["steps"] = steps_of(running[0].round, steps)
    return row


def main() -> None:
    """Measure the two cases of the arguments."""
    cases = [json.loads(word) for word in sys.argv[1:]]
    limited(cases[0], lambda: measured(cases))


if __name__ == "__main__":
    main()
