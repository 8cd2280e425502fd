"""The one error of this package, beside the grid's own: arrays that do not belong together, or cannot be used."""


class DiscreteError(ValueError):
    """An array that does not fit the others, or holds what codes cannot be made of; the message says which."""
