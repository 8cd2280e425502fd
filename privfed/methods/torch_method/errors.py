"""The one error of methods that are made of a torch module."""


class TorchMethodError(ValueError):
    """A module, or what was said about it, cannot be trained honestly or at all."""
