"""The error of this package (the grid has its own): arrays that do not belong together, or cannot be used."""


class DiscreteError(ValueError):
    """An array that does not fit the others, or holds what codes cannot be made of; the message says which."""
