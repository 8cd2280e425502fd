"""The name of the pretended accelerator of tests/devices, registered with torch before any test runs."""

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend


def register() -> None:
    """Give torch the device `pretend`, once per process.

    torch's autograd engine counts the kinds of devices when it first runs: one that is named later has no queue there,
    and every backward pass on it fails.
    """
    if torch._C._get_privateuse1_backend_name() != "pretend":
        _setup_privateuseone_for_python_backend(rename="pretend")
