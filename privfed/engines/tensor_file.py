"""Safetensors files written range by range: no tensor has to fit into memory, and a full disk is an `OSError`.

The library's own writer reports a full disk by an exception of its own kind, and leaves a file of another name behind
where the process is killed.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from privfed.federation import Ranges

_HEADER_SIZE = 8
"""Bytes before a safetensors header that say how long it is, little-endian."""
_ABOUT = "__metadata__"
_AT_ONCE = 16 * 2**20
"""Bytes that are copied at once."""


def write_tensors(path: Path, tensors: Mapping[str, Ranges], about: dict[str, str] | None = None) -> None:
    """Write a safetensors file: a header with the place of every tensor, then their bytes one after the other.

    Args:
        path: of the file.
        tensors: by name; those in files are read range by range.
        about: its metadata.

    Raises:
        OSError: it cannot be written.
    """
    kinds = {name: _kind(values) for name, values in tensors.items()}
    laid_out = save(kinds, about)
    header_size = int.from_bytes(laid_out[:_HEADER_SIZE], "little")
    header: dict[str, Any] = json.loads(laid_out[_HEADER_SIZE : _HEADER_SIZE + header_size])
    names, offset = [name for name in header if name != _ABOUT], 0
    for name in names:
        size = math.prod(tensors[name].shape) * kinds[name].element_size()
        header[name] |= {"shape": list(tensors[name].shape), "data_offsets": [offset, offset := offset + size]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _HEADER_SIZE)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_HEADER_SIZE, "little") + text)
        for name in names:
            for some in _pieces(tensors[name], kinds[name]):
                file.write(some.detach().contiguous().view(-1).view(torch.uint8).numpy().data)


def _kind(values: Ranges) -> Tensor:
    """None of the rows, which tell shape and dtype; a single number as it is."""
    return values.detach() if isinstance(values, Tensor) and not values.dim() else values[:0].detach().clone()


def _pieces(values: Ranges, kind: Tensor) -> Iterator[Tensor]:
    """The rows of a tensor, some at a time."""
    if not kind.dim():
        yield kind
        return
    step = max(1, _AT_ONCE // max(1, math.prod(values.shape[1:]) * kind.element_size()))
    for first in range(0, values.shape[0], step):
        yield values[first : first + step]
