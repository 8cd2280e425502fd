"""The one error of methods that are made of a torch module."""


class TorchMethodError(ValueError):
    """A module, or its declaration, cannot be trained as declared or at all."""
