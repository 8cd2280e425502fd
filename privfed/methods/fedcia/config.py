"""Settings of FedCIA."""

from typing import Literal

from pydantic import Field

from privfed.methods.method import MethodConfig


class FedCIAConfig(MethodConfig):
    """Settings; `benchmarks.quality.defaults` compares filters and weights."""

    filtered_on: Literal["device", "server"] = Field(
        "server",
        description="where a low pass is added: on the device, to its own matrix before it is sent, as released; or on "
        "the server, to the mean matrix, which is then normalised by the popularity of items as GF-CF's is",
    )
    low_pass: float = Field(1.0, ge=0, description="weight of the low pass")
    dim: int = Field(
        64, ge=1, description="eigenvectors of the low pass on the server; one history has no more than one"
    )
