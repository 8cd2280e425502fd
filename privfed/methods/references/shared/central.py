"""Training of the references whose server goes over the collected lists again and again."""

from typing import Any

from privfed.methods.method import Training


class CentralTraining(Training):
    """Histories are collected once and the server trains alone.

    Attributes:
        passes: rounds after which the settings were chosen (`benchmarks.quality.trained_references`).
    """

    step = None
    passes = 30

    def rounds(self, config: Any) -> int:  # noqa: ARG002 (whatever the settings)
        """As many as the settings were chosen for: after the first, too little is learned to judge a method by."""
        return self.passes
