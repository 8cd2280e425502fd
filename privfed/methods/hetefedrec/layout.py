"""Tables, heads and upload blocks of every group and variant, as data instead of code.

HeteFedRec's tables are nested (eq. 7-9): what a client uploads is cut into column segments, `items.0:8`, `items.8:16`,
`items.16:32`, and a table of width N adds the segments below N. A client holds the segments within its own width, so
padding with zeros is not needed and unequal clients sum block by block. Where groups stay apart (clustered), every
group has a block of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.prefix_heads import PrefixHeads


@dataclass(frozen=True, slots=True)
class Segment:
    """One block of item columns.

    Attributes:
        block: its name.
        start, stop: its columns.
        holders: models whose clients send it, by index.
        share: expected share of the users who hold it, a public number.
    """

    block: str
    start: int
    stop: int
    holders: tuple[int, ...]
    share: float

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Model:
    """The model that clients of one size train.

    Attributes:
        name: of the group.
        width: of its vectors.
        heads: indices of the heads it trains, its own last.
        decorrelated: whether its item rows are decorrelated.
    """

    name: str
    width: int
    heads: tuple[int, ...]
    decorrelated: bool


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """Models, segments and their names for one variant.

    Attributes:
        config: settings.
        models: sizes that exist, smallest first.
        of_group: model of every group.
        sending: groups whose clients upload.
        apart: whether models share nothing.
    """

    config: HeteFedRecConfig
    models: tuple[Model, ...]
    of_group: tuple[int, ...]
    sending: tuple[int, ...]
    apart: bool

    @classmethod
    def from_config(cls, config: HeteFedRecConfig) -> "ModelLayout":
        """The layout of a variant."""
        groups, variant = tuple(range(len(config.widths))), config.variant
        if variant in ("all_small", "all_large", "exclusive"):
            only = groups[0] if variant == "all_small" else groups[-1]
            model = Model(config.names[only], config.widths[only], (0,), decorrelated=False)
            sending = groups[-1:] if variant == "exclusive" else groups
            return cls(config, (model,), (0,) * len(groups), sending, apart=False)
        whole = variant == "hetefedrec"
        models = tuple(
            Model(
                config.names[g],
                config.widths[g],
                # Dual task (eq. 11): wider clients also train the narrower heads, on prefixes of their vectors.
                groups[: g + 1] if whole and config.dual_task else (g,),
                # As published, for all clients but the smallest (eq. 14).
                decorrelated=whole and config.decorrelation > 0 and g > 0,
            )
            for g in groups
        )
        sending = () if variant == "standalone" else groups
        return cls(config, models, groups, sending, apart=variant in ("clustered", "standalone"))

    @property
    def distils(self) -> bool:
        """Whether the server makes the tables' similarities agree."""
        return self.config.variant == "hetefedrec" and self.config.distillation > 0 and len(self.models) > 1

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Blocks of item columns; none where nobody sends."""
        if not self.sending:
            return ()
        if self.apart:
            return tuple(
                Segment(f"items.0:{m.width}.{m.name}", 0, m.width, (i,), self._share((i,)))
                for i, m in enumerate(self.models)
            )
        found, start = [], 0
        for first, model in enumerate(self.models):
            # Models come smallest first, so everybody from this one on is wide enough for its columns.
            holders = tuple(range(first, len(self.models)))
            block = f"items.{start}:{model.width}"
            found.append(Segment(block, start, model.width, holders, self._share(holders)))
            start = model.width
        return tuple(found)

    def held(self, model: int) -> tuple[Segment, ...]:
        """Segments within one model's table, in the order of its columns."""
        return tuple(segment for segment in self.segments if model in segment.holders)

    def head_name(self, head: int) -> str:
        """Prefix of a head's blocks."""
        return f"head.{self.models[head].name}"

    def head_of(self, parameters: Mapping[str, Tensor], head: int) -> dict[str, Tensor]:
        """A head's weights out of all public parameters, by their own names."""
        names = self.head(head).head(0).shapes()
        return {name: parameters[f"{self.head_name(head)}.{name}"] for name in names}

    def head_holders(self, head: int) -> tuple[int, ...]:
        """Models that train a head."""
        return tuple(i for i, model in enumerate(self.models) if head in model.heads)

    def head_share(self, head: int) -> float:
        """Expected share of the users who train a head."""
        return self._share(self.head_holders(head))

    def bias_name(self, model: int) -> str:
        """Block and parameter of the item bias that a model uses."""
        return f"bias.{self.models[model].name}" if self.apart else "bias"

    def needs(self, model: int, parameter: str) -> bool:
        """Whether devices of a model need a public parameter: its own table and bias, and the heads that it trains."""
        group = self.models[model]
        if parameter in (f"items.{group.name}", self.bias_name(model)):
            return True
        return any(parameter.startswith(f"{self.head_name(head)}.") for head in group.heads)

    @property
    def biases(self) -> dict[str, tuple[int, ...]]:
        """Bias blocks and the models that hold them; none without item bias."""
        if not self.config.item_bias:
            return {}
        everyone = range(len(self.models))
        return {self.bias_name(i): (i,) for i in everyone} if self.apart else {"bias": tuple(everyone)}

    def bias_share(self, holders: tuple[int, ...]) -> float:
        """Expected share of the users who hold a bias block."""
        return self._share(holders)

    def heads(self, model: int) -> PrefixHeads:
        """The stacked heads that a model trains."""
        group = self.models[model]
        widths = tuple(self.models[head].width for head in group.heads)
        return PrefixHeads(widths, self.config.hidden, self.config.activation, self.config.inner)

    def head(self, head: int) -> PrefixHeads:
        """One head by itself, as it scores."""
        c = self.config
        return PrefixHeads((self.models[head].width,), c.hidden, c.activation, c.inner)

    def schema(self, n_items: int) -> Schema:
        """Everything a client may upload; counts of clients only where a mean over contributors needs them."""
        c, blocks = self.config, dict[str, Block]()
        for segment in self.segments:
            blocks[segment.block] = Block((n_items, segment.width))
        if self.sending:
            blocks |= {name: Block((n_items, 1)) for name in self.biases}
            for head in range(len(self.models)):
                for name, shape in self.head(head).head(0).shapes().items():
                    blocks[f"{self.head_name(head)}.{name}"] = Block(shape)
        if c.aggregation == "contributors":
            # One count per row, bounded by 1 per client: a public bound that noise can be sized by.
            blocks |= {touched(s.block): _count((n_items, 1)) for s in self.segments}
        if c.head_aggregation == "contributors" and self.sending:
            blocks |= {members(self.head_name(head)): _count((1,)) for head in range(len(self.models))}
        return blocks

    def _share(self, holders: tuple[int, ...]) -> float:
        shares = self.config.shares
        # By group, not by model: several groups may train the same model, and not all need send.
        return sum(shares[g] for g in self.sending if self.of_group[g] in holders)


def touched(block: str) -> str:
    """Name of the block that counts who sent a row of `block`."""
    return f"touched.{block}"


def members(head: str) -> str:
    """Name of the block that counts who sent a head."""
    return f"members.{head}"


def _count(shape: tuple[int, ...]) -> Block:
    return Block(shape, kind="integer", bound=1, counts=True)
