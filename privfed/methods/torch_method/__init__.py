"""Bring your own model: a torch module for one user, trained federated by stacked parameters."""

from privfed.methods.torch_method.errors import TorchMethodError
from privfed.methods.torch_method.registering import torch_method
from privfed.methods.torch_method.spec import TorchConfig

__all__ = ["TorchConfig", "TorchMethodError", "torch_method"]
