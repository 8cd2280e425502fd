"""`refuse_shape`: what a server sends is measured before compiled code, which reads memory unchecked, is given it."""

from torch import Tensor


def refuse_shape(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse values of another shape.

    Raises:
        IndexError: the server, which chooses what it sends, sent something else.
    """
    if tuple(values.shape) != shape:
        raise IndexError(f"{name} came with shape {tuple(values.shape)}, and {shape} was expected; drop the message")
