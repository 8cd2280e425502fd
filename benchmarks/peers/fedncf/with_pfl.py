"""FedNCF in pfl: federated averaging over everybody in one process, user after user, vectors kept next to the model.

    PEER_DATA=... PEER_MARK=... python -m benchmarks.peers.fedncf.with_pfl ROUNDS SEED

runs where pfl is installed and prints one line of JSON, as `with_flower.py` does.
"""

import json
import sys
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.fedncf.plain import DIM, FedNCF, Marks, first_vector, optimiser, rank, samples, world

ROUNDS, SEED = map(int, sys.argv[1:])


class Module(FedNCF):
    """The model as pfl wants it, with the vector of whoever trains."""

    def __init__(self) -> None:
        super().__init__(world().n_items)
        self.vector = torch.zeros(DIM)

    def loss(self, items: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean binary cross-entropy of a batch."""
        return torch.nn.functional.binary_cross_entropy(self.logits(self.vector, items).sigmoid(), labels)

    @torch.no_grad()
    def metrics(self, items: torch.Tensor, labels: torch.Tensor) -> dict[str, Weighted]:
        """Something to report, which pfl asks for."""
        return {"loss": Weighted(float(self.loss(items, labels)) * len(items), len(items))}


class Model(PyTorchModel):
    """Puts the user's own vector in place before local training, and back after it."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
        self.vectors: dict[int, torch.Tensor] = {}
        self.round = 0
        self.found: list[tuple[float, float]] = []

    def new_local_optimizer(self, learning_rate: float) -> torch.optim.Optimizer:
        """Three groups of parameters, each at its own rate."""
        del learning_rate
        return optimiser(self._model, self._model.vector, world().n_items)

    def do_multiple_epochs_of(self, user_dataset: Dataset, train_params: Any, train_step_fn: Any, **kwargs: Any) -> Any:
        """As pfl, between two moves of the vector; the last round also ranks the test item."""
        user = int(user_dataset.user_id)
        self._model.vector = self.vectors.setdefault(user, first_vector(user)).requires_grad_()
        done = super().do_multiple_epochs_of(user_dataset, train_params, train_step_fn, **kwargs)
        if self.round == ROUNDS and (found := rank(self._model, user, self._model.vector)) is not None:
            self.found.append(found)
        return done


class Noting(TrainingProcessCallback):
    """Notes the clock after every round."""

    def __init__(self, model: Model) -> None:
        self.model, self.marks = model, Marks()
        model.round = 1

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """A round is over."""
        del aggregate_metrics, model
        self.marks.mark()
        self.model.round = central_iteration + 2
        return False, Metrics()


def main() -> None:
    """All rounds, then one line of JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = Model(Module())
    noting, users = Noting(model), list(range(world().n_users))

    def dataset(user: int) -> Dataset:
        draw = np.random.default_rng([2, SEED, model.round, user])
        return Dataset(raw_data=list(samples(user, draw)), user_id=str(user))

    data = FederatedDataset(dataset, get_user_sampler("minimize_reuse", users))
    algorithm = NNAlgorithmParams(
        central_num_iterations=ROUNDS,
        evaluation_frequency=10 * ROUNDS,
        train_cohort_size=len(users),
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=1.0, local_batch_size=256)
    FederatedAveraging().run(
        algorithm, SimulatedBackend(data, None), model, local, NNEvalHyperParams(local_batch_size=None), [noting]
    )
    hits, gains = np.mean(model.found, 0)
    row = noting.marks.rows(left_out=1)
    row |= {"clients": len(users), "hr": float(hits), "ndcg": float(gains), "trained": ROUNDS}
    print(json.dumps(row))


if __name__ == "__main__":
    main()
