"""One experiment: a method on a data set behind a privacy plan, measured under a protocol.

`Experiment.run` trains, evaluates, taps and returns a `RunResult`. With a run directory it also writes metrics as they
come, the ledger before every release, and checkpoints from which a killed run continues to the same bits.
"""

from typing import TYPE_CHECKING

from privfed.lazy import load_lazily

if TYPE_CHECKING:
    from privfed.experiment.driver import Experiment
    from privfed.experiment.evaluation import ExactEvaluation
    from privfed.experiment.result import RunResult
    from privfed.experiment.training import Progress, TrainingProgress

__all__ = ["ExactEvaluation", "Experiment", "Progress", "RunResult", "TrainingProgress"]

load_lazily(__name__)
