"""Settings of HeteFedRec and of the baselines of its Table II."""

from typing import Literal, Self

from pydantic import Field, model_validator

from privfed.methods.hetefedrec.local_adam import LocalOptimiser
from privfed.methods.hetefedrec.prefix_heads import Activation
from privfed.methods.method import MethodConfig
from privfed.methods.shared.server_optimiser import Kind, ServerOptimiser

Base = Literal["ncf", "lightgcn"]
Variant = Literal["hetefedrec", "direct", "all_small", "all_large", "exclusive", "standalone", "clustered"]
Grouping = Literal["activity", "capacity", "random"]
Propagation = Literal["star", "centre"]
Aggregation = Literal["sum", "contributors", "fixed"]
NAMES = ("small", "medium", "large")


class HeteFedRecConfig(MethodConfig):
    """Settings; the preset `published` has the paper's.

    The defaults were chosen by NDCG on the validation part of MovieLens-1M, the server's rate on those of seven
    catalogues (`benchmarks.quality.defaults`). They keep clients of three sizes and the training of every prefix, and
    differ in what made the published ones stop at popularity: scores add an inner product and an item bias to the
    perceptron, a user is first of all the items it took, and clients send one plain gradient step that the server's
    Adam scales. Capacities make the groups, so that groups say nothing about data; decorrelation and distillation did
    not help there and are off.
    """

    base: Base = Field(
        "lightgcn", description="ncf, or lightgcn: one propagation on the user's own star graph, same head"
    )
    propagation: Propagation = Field(
        "centre",
        description="of lightgcn; star: as published, to the user and to the items; centre: to the user alone, and the "
        "inner product of a positive leaves out what it gave the user itself",
    )
    variant: Variant = Field(
        "hetefedrec",
        description="hetefedrec; direct: nested tables without its three parts; clustered: groups apart; all_small, "
        "all_large: one size; exclusive: one large size, only the last group's updates count; standalone: no server",
    )
    widths: tuple[int, ...] = Field((16, 32, 64), description="widths of the groups' vectors, ascending")
    groups: Grouping = Field(
        "capacity",
        description="activity: by number of training items, which a group then reveals; capacity: drawn by the "
        "device's own key; random: by group_seed",
    )
    shares: tuple[float, ...] = Field(
        (0.5, 0.3, 0.2), description="share of the users in every group; what fixed means divide by"
    )
    thresholds: tuple[int, ...] | None = Field(
        None,
        description="training items from which the next group begins, public numbers that the shares should fit; "
        "empty: percentiles that give the shares",
    )
    group_seed: int = Field(0, ge=0, description="seed of random groups")
    hidden: tuple[int, ...] = Field((8, 8), description="hidden widths of every head")
    activation: Activation = Field("relu", description="relu or leaky_relu (slope 0.01)")
    inner: bool = Field(default=True, description="add the inner product of user and item vector to every logit")
    item_bias: bool = Field(default=True, description="add one shared number per item to every logit")
    dual_task: bool = Field(default=True, description="train every nested prefix with its own head (eq. 11)")
    decorrelation: float = Field(0.0, ge=0, description="alpha of eq. 14, for all but the smallest; 0 leaves it out")
    distillation: int = Field(0, ge=0, description="distillation steps of the server per round; 0 leaves it out")
    distillation_items: int = Field(256, ge=2, description="items drawn for each of them")
    distillation_optimiser: Literal["adam", "sgd"] = Field("adam", description="of the distillation steps")
    distillation_lr: float = Field(1e-3, gt=0, description="learning rate of the distillation steps")
    local_optimiser: LocalOptimiser = Field(
        "sgd", description="of what is shared: adam with fresh moments every round, or sgd"
    )
    user_optimiser: LocalOptimiser = Field("adam", description="of the user vector, likewise")
    steps: int = Field(1, ge=1, description="full-batch local steps on everything")
    user_steps: int = Field(0, ge=0, description="local steps on the user vector alone, before the others")
    user_l2: float = Field(0.1, ge=0, description="L2 penalty on the user vector: half of this times its square norm")
    lr_user: float = Field(0.05, gt=0, description="learning rate of the user vector")
    lr_items: float = Field(1.0, gt=0, description="learning rate of item rows")
    lr_heads: float = Field(0.1, gt=0, description="learning rate of the heads")
    lr_bias: float = Field(1.0, gt=0, description="learning rate of the item bias")
    negatives: int = Field(4, ge=1, description="negatives per positive, all of a client's distinct, as far as they go")
    fixed_negatives: bool = Field(default=False, description="draw the negatives once instead of every round")
    aggregation: Aggregation = Field(
        "fixed",
        description="of item rows; sum: as published; contributors: mean over the clients that sent a row, which "
        "needs their counts; fixed: public numbers only, the one mean under differential privacy",
    )
    head_aggregation: Aggregation = Field("fixed", description="of heads: sum, contributors or fixed, as for item rows")
    touch_rate: float = Field(0.1, gt=0, le=1, description="share of clients expected to touch a row (fixed)")
    server_optimiser: Literal["average"] | Kind = Field(
        "adam", description="average adds the aggregate; adam, sgd, momentum take it as pseudo-gradient"
    )
    server_lr: float = Field(0.05, gt=0, description="learning rate of the server's adam, sgd or momentum")
    initial_scale: float = Field(0.01, gt=0, description="standard deviation of initial item vectors")
    initial_user_scale: float = Field(0.01, gt=0, description="standard deviation of initial user vectors")
    standalone_steps: int = Field(100, ge=1, description="local steps of a device that trains alone (standalone)")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups, smallest first."""
        return NAMES[: len(self.widths)]

    def optimiser(self) -> ServerOptimiser:
        """A fresh server optimiser; averaging is SGD at rate 1."""
        if self.server_optimiser == "average":
            return ServerOptimiser("sgd", 1.0)
        return ServerOptimiser(self.server_optimiser, self.server_lr)

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if not 1 <= len(self.widths) <= len(NAMES):
            raise ValueError(f"widths has {len(self.widths)} groups; give one to three, one width each")
        if self.widths[0] < 1 or any(b <= a for a, b in zip(self.widths, self.widths[1:], strict=False)):
            raise ValueError(f"widths is {self.widths}; give whole numbers of at least 1 in ascending order")
        if len(self.shares) != len(self.widths):
            raise ValueError(
                f"shares has {len(self.shares)} groups and widths {len(self.widths)}; give one share for every width"
            )
        if min(self.shares) <= 0 or abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(f"shares is {self.shares}; give numbers above 0 whose sum is 1")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden is {self.hidden}; every hidden width must be at least 1")
        return self

    @model_validator(mode="after")
    def _thresholds_fit(self) -> Self:
        if self.thresholds is None:
            return self
        if self.groups != "activity":
            raise ValueError(
                f"thresholds are training counts, but groups is {self.groups!r}, which looks at none: leave them "
                f"out or choose groups = 'activity'"
            )
        if len(self.thresholds) != len(self.widths) - 1:
            raise ValueError(
                f"thresholds has {len(self.thresholds)} counts for {len(self.widths)} groups; give one less than groups"
            )
        if any(b <= a for a, b in zip(self.thresholds, self.thresholds[1:], strict=False)):
            raise ValueError(f"thresholds is {self.thresholds}; give counts in ascending order")
        return self

    @model_validator(mode="after")
    def _variant_fits(self) -> Self:
        if self.variant == "exclusive" and len(self.widths) < 2:
            raise ValueError("variant is 'exclusive' with one group, so nobody would be left out: give two or more")
        return self
