"""The server of HeteFedRec and its baselines: one table and one head for every size."""

from collections.abc import Mapping

import torch
from torch import Tensor

from privfed.contracts import Schema
from privfed.federation import PUBLIC, SERVER, Federation, Message, Purpose, Streams, Total
from privfed.methods.hetefedrec.aggregation import head_update, row_update
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.distillation import distillation_gradients, distilled_items
from privfed.methods.hetefedrec.layout import ModelLayout
from privfed.methods.method import PublicInfo
from privfed.methods.shared.heads import initial_perceptron
from privfed.methods.shared.server_optimiser import ServerOptimiser
from privfed.methods.shared.table_server import initial_table

_SEED_ASK = 1


class HeteFedRecServer:
    """The server.

    Tables start as prefixes of one (eq. 10) and receive the same segments, so that they stay prefixes of one until
    distillation moves them apart.

    Args:
        config: settings.
        public_info: all that is public.
        streams: of the initial parameters and the server's own draws.
    """

    def __init__(self, config: HeteFedRecConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, self.layout, self.n_items = config, ModelLayout.from_config(config), public_info.n_items
        widest = initial_table(streams, public_info.n_items, config.widths[-1], config.initial_scale)
        self.parameters: dict[str, Tensor] = {
            f"items.{model.name}": widest[:, : model.width].clone() for model in self.layout.models
        }
        self.parameters |= {name: torch.zeros(public_info.n_items, 1) for name in self.layout.biases}
        for index in range(len(self.layout.models)):
            head = self.layout.head(index).head(0)
            unit = streams.uniform(Purpose.INITIALISE, 0, 1 + index, [PUBLIC], head.size)[0]
            prefix = self.layout.head_name(index)
            self.parameters |= {f"{prefix}.{name}": value for name, value in initial_perceptron(head, unit).items()}
        self._needed_bytes = self._mean_download()
        self.schema: Schema = self.layout.schema(public_info.n_items)
        self.optimiser = config.optimiser()
        self.distiller = ServerOptimiser(config.distillation_optimiser, config.distillation_lr)
        self._seed = streams.words(Purpose.INITIALISE, 0, _SEED_ASK, [SERVER], 4)[0].tolist()

    def round(self, federation: Federation, t: int) -> None:
        """Aggregate the cohort's segments and heads, then distil; devices that train alone have nothing to send."""
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        if not self.schema:
            return
        self.parameters = self.optimiser.step(self.parameters, self._updates(release))
        if self.layout.distils:
            self._distil(t)

    def public(self) -> Message:
        """Tables, heads and item bias; a device downloads those of its own size."""
        return Message(self.parameters, needed_bytes=self._needed_bytes)

    def _mean_download(self) -> int:
        """Bytes of what a device of each group needs, by the groups' expected shares."""
        each = [
            sum(value.nbytes for name, value in self.parameters.items() if self.layout.needs(model, name))
            for model in self.layout.of_group
        ]
        return round(sum(share * size for share, size in zip(self.config.shares, each, strict=True)))

    def state(self) -> dict[str, Tensor]:
        """Parameters and the state of both optimisers."""
        state = dict(self.parameters)
        for prefix, optimiser in self._optimisers.items():
            state |= {f"{prefix}.{name}": value for name, value in optimiser.state().items()}
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = {name: state[name] for name in self.parameters}
        for prefix, optimiser in self._optimisers.items():
            start = f"{prefix}."
            optimiser.load({name[len(start) :]: value for name, value in state.items() if name.startswith(start)})

    @property
    def _optimisers(self) -> dict[str, ServerOptimiser]:
        return {"optimiser": self.optimiser, "distiller": self.distiller}

    def _updates(self, release: Total) -> dict[str, Tensor]:
        """Update of every parameter."""
        c, layout = self.config, self.layout
        segments = {
            s.block: row_update(c.aggregation, release, s.block, s.block, s.share * c.touch_rate)
            for s in layout.segments
        }
        updates = {
            f"items.{model.name}": torch.cat([segments[s.block] for s in layout.held(index)], 1)
            for index, model in enumerate(layout.models)
        }
        for name, holders in layout.biases.items():
            counted = layout.held(holders[0])[0].block
            share = layout.bias_share(holders) * c.touch_rate
            updates[name] = row_update(c.aggregation, release, name, counted, share)
        for index in range(len(layout.models)):
            prefix, share = layout.head_name(index), layout.head_share(index)
            for name in layout.head(index).head(0).shapes():
                block = f"{prefix}.{name}"
                updates[block] = head_update(c.head_aggregation, release, block, prefix, share)
        return updates

    def _distil(self, t: int) -> None:
        """Steps towards common similarities, on tables alone."""
        names = [f"items.{model.name}" for model in self.layout.models]
        for step in range(self.config.distillation):
            items = distilled_items(self._seed, t, step, self.n_items, self.config.distillation_items)
            tables = {name: self.parameters[name] for name in names}
            gradients = distillation_gradients([table[items] for table in tables.values()])
            moves = {
                name: torch.zeros_like(tables[name]).index_copy_(0, items, -gradient)
                for name, gradient in zip(names, gradients, strict=True)
            }
            self.parameters |= self.distiller.step(tables, moves)
