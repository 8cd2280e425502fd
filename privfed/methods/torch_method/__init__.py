"""Bring your own model: a torch module for one user, trained federated by stacked parameters."""

from privfed.methods.torch_method.errors import TorchMethodError
from privfed.methods.torch_method.recipe import TorchConfig
from privfed.methods.torch_method.registering import torch_method

__all__ = ["TorchConfig", "TorchMethodError", "torch_method"]
