"""From a module to a registered method: one call."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from pydantic import ValidationError

from privfed.contracts import MethodTraits
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method, ServerReads
from privfed.methods.shared.sampled_training import SampledTraining
from privfed.methods.torch_method.client import TorchClients
from privfed.methods.torch_method.parameters import ParameterLayout
from privfed.methods.torch_method.server import TorchServer
from privfed.methods.torch_method.spec import LearningRates, Loss, ModuleFactory, TorchConfig, TorchMethodSpec

_CATALOGUES = (37, 41)
"""Two sizes at which a module is built once when it is registered: what grows with them has one row per item."""


class TorchTraining(SampledTraining):
    """Stacked local SGD on an author's module; the server averages what is shared."""

    def __init__(self, spec: TorchMethodSpec) -> None:
        self.server, self.clients = partial(TorchServer, spec), partial(TorchClients, spec)


def torch_method(
    *,
    name: str,
    title: str,
    source: str,
    config: type[TorchConfig],
    module: ModuleFactory,
    private: Sequence[str] = (),
    loss: Loss = torch.nn.functional.binary_cross_entropy_with_logits,
    learning_rates: LearningRates | None = None,
    per_user_start: bool = False,
    item_block: str | None = None,
    reads: str | None = None,
    display_name: str | None = None,
) -> Method:
    """A method that trains a torch module for one user in every client, and averages what is shared.

    The module is the model of one user: `forward(items)` gets item numbers `[batch]` and returns their logits
    `[batch]`. It is built for two small catalogues here, so that a mistake raises at once.

    Args:
        name: name on the command line.
        title: one line for people.
        source: paper and venue, or where the model comes from.
        config: settings, every one with a default.
        module: `(config, n_items) -> nn.Module`; draws initial values with torch's generator.
        private: parameters, or submodules, that never leave the device; everything else trainable is uploaded.
        loss: `(logits, labels) -> one loss per sample`; losses of torch.nn.functional are taken as they are.
        learning_rates: `(config, n_items) -> {parameter or submodule: rate}`; `config.lr` for those not named.
        per_user_start: initialise private parameters by the module's own code under each user's own key; it
            builds the module once per user. Otherwise everybody starts from the public initial values.
        item_block: the shared parameter `[items, width]` that attacks look at; None finds the only one.
        reads: one noun phrase on what the server learns; None names the blocks.
        display_name: name in reports and tables; None takes `name`.

    Raises:
        TorchMethodError: the module cannot be trained honestly or at all, in one sentence.
    """
    spec = TorchMethodSpec(name, module, tuple(private), loss, learning_rates, per_user_start)
    if not issubclass(config, TorchConfig):
        raise spec.refusal(f"config is {config.__name__}; extend TorchConfig, which holds what local SGD reads")
    try:
        defaults = config()
    except ValidationError as error:
        missing = ", ".join(str(problem["loc"][0]) for problem in error.errors())
        raise spec.refusal(f"the settings {missing} need a valid default, as every setting does") from error
    small, large = (
        ParameterLayout.from_spec(spec, defaults, n_items, np.zeros(2, np.uint32)) for n_items in _CATALOGUES
    )
    spec.rates(defaults, small.n_items, [*small.private, *small.shared])
    growing = [table for table in small.tables if table in large.tables]
    tables = [table for table in growing if small.shared[table].dim() == 2]
    numbers = [table for table in growing if table not in tables]
    return Method(
        name=name,
        title=title,
        display_name=display_name or name,
        source=source,
        config=config,
        traits=MethodTraits(release="total", upload="rows" if small.by_row else "dense"),
        training=TorchTraining(spec),
        attack_surface=NamedBlocks(
            _item_block(spec, tables, item_block),
            bias=numbers[0] if len(numbers) == 1 else None,
            scores_are_logits=True,
        ),
        disclosure=ServerReads(reads or f"the sums of updates of {', '.join(small.shared)}"),
    )


def _item_block(spec: TorchMethodSpec, tables: Sequence[str], chosen: str | None) -> str:
    if chosen is None and len(tables) == 1:
        return tables[0]
    if chosen in tables:
        return str(chosen)
    if not tables:
        raise spec.refusal(
            "no shared parameter has the shape [items, width], so no attack could tell what an upload gives away "
            "about items; share one, for example an nn.Embedding(n_items, dim)"
        )
    given = "nothing says" if chosen is None else f"item_block is {chosen!r}, but"
    raise spec.refusal(f"{given} which of the item tables {', '.join(tables)} attacks look at; name one as item_block")
