"""The server: shared parameters, moved along the mean update of every round.

Federated averaging (McMahan et al., AISTATS 2017) unless another server optimiser is chosen; every client weighs the
same, as weights by data size would have to be protected too.
"""

from collections.abc import Mapping

from torch import Tensor

from privfed.contracts import Schema
from privfed.federation import Federation, Message, Streams
from privfed.methods.method import PublicInfo
from privfed.methods.shared.server_optimiser import ServerOptimiser
from privfed.methods.torch_method.parameters import ParameterLayout
from privfed.methods.torch_method.spec import TorchConfig, TorchMethodSpec, public_words

_OPTIMISER = "optimiser/"


class TorchServer:
    """Shared parameters under the module's own names; it keeps tensors only, no module and no code of its author."""

    def __init__(self, spec: TorchMethodSpec, config: TorchConfig, public_info: PublicInfo, streams: Streams) -> None:
        layout = ParameterLayout.from_spec(spec, config, public_info.n_items, public_words(streams))
        self.parameters = {name: value.clone() for name, value in layout.shared.items()}
        self.optimiser = ServerOptimiser(config.server_optimiser, config.server_lr)
        self.schema: Schema = layout.schema()

    def round(self, federation: Federation, t: int) -> None:
        """Move along the mean update of every block."""
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        self.parameters = self.optimiser.step(self.parameters, {name: release.mean(name) for name in self.parameters})

    def public(self) -> Message:
        """All shared parameters."""
        return Message(self.parameters)

    def state(self) -> dict[str, Tensor]:
        """All shared parameters and the optimiser's moments."""
        return self.parameters | {_OPTIMISER + name: value for name, value in self.optimiser.state().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = {name: state[name] for name in self.parameters}
        moments = {name.removeprefix(_OPTIMISER): value for name, value in state.items() if name.startswith(_OPTIMISER)}
        self.optimiser.load(moments)
