"""A mechanism as a function from inputs and a seed to numbers: all its randomness captured, all its outputs flat.

The seed makes the generator that is passed in, and seeds the global generators of Python, numpy and torch, so that the
same seed replays what the mechanism did wherever it takes its randomness from, short of the operating system.
"""

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from attacks.mechanism.inputs import Columns, Example

Release: TypeAlias = Callable[[Any, Any], Any]
"""Mechanism: (inputs, generator) -> array, tensor or number, or a mapping or sequence of them."""

Layout: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of all outputs."""

_NUMBERS = "fiub"
"""Kinds of arrays that are read."""


@dataclass(frozen=True, eq=False)
class Trials:
    """What several calls on one input released.

    Attributes:
        numbers: One row per call, NaN where the outputs had another layout; float64 holds every smaller number exactly.
        odd: Calls whose outputs had another layout than the reference.
        layout: The reference: names and shapes of all outputs.
    """

    numbers: np.ndarray
    odd: np.ndarray
    layout: Layout

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.numbers)

    def after(self, calls: int) -> "Trials":
        """All but the first calls."""
        return Trials(self.numbers[calls:], self.odd[calls:], self.layout)

    def name(self, index: int) -> str:
        """Name of one number of the outputs."""
        for name, shape in self.layout:
            size = int(np.prod(shape))
            if index < size:
                label = name or "output"
                return f"{label}[{', '.join(str(int(i)) for i in np.unravel_index(index, shape))}]" if shape else label
            index -= size
        return "output"


@dataclass(eq=False)
class CapturedRelease:
    """A mechanism whose randomness follows a seed.

    Attributes:
        release: The mechanism.
        example: Form in which it takes its inputs.
        unread: Outputs that are no numbers.
        refusals: Inputs that it refused, with the reason.
        calls: Calls so far.
    """

    release: Release
    example: Example
    unread: tuple[str, ...] = ()
    refusals: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    def begin(self) -> None:
        """Call the mechanism once on the example.

        Raises:
            ValueError: If the mechanism refuses the example, or releases no numbers.
        """
        try:
            leaves = list(_leaves("", self._call(self.example.columns, 0)))
        except Exception as error:
            raise ValueError(
                f"The mechanism refused the example ({type(error).__name__}: {error}); pass inputs that it takes."
            ) from error
        self.unread = tuple(name or "output" for name, array in leaves if array.dtype.kind not in _NUMBERS)
        if not sum(array.size for _, array in leaves if array.dtype.kind in _NUMBERS):
            raise ValueError("The mechanism released no numbers; pass one that returns arrays, tensors or numbers.")

    def trials(self, columns: Columns, seeds: Sequence[int], layout: Layout | None = None) -> Trials:
        """What is released under each seed, in the given layout or that of the first call."""
        rows = []
        for seed in seeds:
            leaves = _leaves("", self._call(columns, seed))
            outputs = [(name, array) for name, array in leaves if array.dtype.kind in _NUMBERS]
            shapes = tuple((name, array.shape) for name, array in outputs)
            layout = shapes if layout is None else layout
            rows.append(np.concatenate([array.ravel() for _, array in outputs]) if shapes == layout else None)
        reference = layout or ()
        width = sum(int(np.prod(shape)) for _, shape in reference)
        numbers = np.array([np.full(width, np.nan) if row is None else row for row in rows], np.float64)
        return Trials(numbers.reshape(len(rows), width), np.array([row is None for row in rows], bool), reference)

    def _call(self, columns: Columns, seed: int) -> Any:
        self.calls += 1
        torch = sys.modules.get("torch")
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002  (mechanisms that use it must be replayed too)
        if torch is not None:
            # `torch.manual_seed` seeds every device as well, for a millisecond a call.
            torch.default_generator.manual_seed(seed)
        inputs = self.example.pack(columns)
        if self.example.torch and torch is not None:
            return self.release(inputs, torch.Generator().manual_seed(seed))
        return self.release(inputs, np.random.default_rng(seed))


@contextmanager
def untouched_randomness() -> Iterator[None]:
    """Leave the global generators as they were, and keep warnings about extreme numbers to ourselves."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()  # noqa: NPY002
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(states[2])


def _leaves(name: str, output: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Everything that is no mapping or sequence in an output, as an array, with its name."""
    if output is None:
        return
    if isinstance(output, Mapping):
        for key, value in output.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), value)
    elif isinstance(output, tuple | list):
        for index, value in enumerate(output):
            yield from _leaves(f"{name}[{index}]", value)
    else:
        yield name, output.detach().cpu().numpy() if hasattr(output, "detach") else np.asarray(output)
