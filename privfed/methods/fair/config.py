"""Settings of FAIR and of the baselines it is compared with, and which of them do not go together."""

from typing import Literal, Self

from pydantic import Field, model_validator

from privfed.methods.fair.neumf import NeuMF
from privfed.methods.fair.subspaces import By, CapacityError, Kind, Scheme, Short
from privfed.methods.method import MethodConfig

Variant = Literal["fair", "hom", "full_trn", "fedhm", "heterofl", "fedavg"]
Placement = Literal["server", "tier"]

MIN_MEMBERS = 3
"""Members without which a tier's sum says too much: of one it is that client's update, of two either subtracts its own.
"""

DEEPEST = 24
"""Levels that a budget in bytes may lead to."""


class FairConfig(MethodConfig):
    """Settings; the defaults are those of the released code (README) where it has them, but for the rate.

    That was chosen on the validation parts of seven catalogues (`benchmarks.quality.defaults`).
    """

    task: Literal["ranking", "rating"] = Field(
        "ranking", description="ranking: BPR on what users took; rating: squared errors of their explicit ratings"
    )
    variant: Variant = Field(
        "fair",
        description="fair; hom: everybody at the smallest capacity of the scheme; full_trn: only devices that hold "
        "everything train; fedhm: low-rank tables; heterofl: first columns of tables; fedavg: everybody holds all",
    )
    scheme: str = Field("1x-4x", description="compressions of the tiers, as in 1x-4x or 1x:0.9-2x:0.1")
    budgets: tuple[int, ...] | None = Field(
        None,
        min_length=1,
        description="bytes of memory of the devices in place of a scheme, each for an equal share of the users",
    )
    interactions: int = Field(
        0, ge=0, description="interactions that every device sets room aside for in its budget (a public number)"
    )
    assigned: By = Field("random", description="who gets which capacity: random, by pseudonym, or by activity")
    capacity_seed: int = Field(0, description="seed of random capacities")
    dim: int = Field(8, ge=1, description="width of every table")
    hidden: tuple[int, ...] = Field((8,), min_length=1, description="hidden widths of the perceptron")
    lr: float = Field(1e-2, gt=0, description="learning rate of the clients' Adam")
    epochs: int = Field(5, ge=1, description="local epochs of a round")
    batch_size: int = Field(512, ge=1, description="local samples per step")
    shuffle: bool = Field(
        default=True, description="a new order of the samples in every epoch; the released code keeps one"
    )
    initial_scale: float = Field(0.01, gt=0, description="standard deviation of initial user and item rows")
    proximal: float = Field(
        1.0,
        ge=0,
        le=1,
        description="how far the server moves towards what the tiers can hold: 1 is averaging parameters, as published",
    )
    placement: Placement = Field(
        "server",
        description="server: uploads are tables and add up to one sum, which hides larger devices among each other "
        "only; tier: a sum for each tier in its own subspace",
    )
    min_tier: int | None = Field(
        None,
        ge=1,
        description="fewest clients of a round that train in any tier; short tiers join others before anybody trains, "
        "which takes an exact count of tiers first; empty: 3 with placement tier, 1 (nobody is counted) with server",
    )
    short: Short = Field(
        "demote",
        description="what happens to a tier with fewer: demote, lift or skip; only tiers smaller than one that has "
        "enough are lifted",
    )
    weights: Literal["uniform", "samples"] = Field(
        "uniform", description="samples: clients count by their number of interactions, as published"
    )
    shares: Literal["expected", "realised"] = Field(
        "expected", description="tiers' shares of a round: the public expected ones, or those counted in the round"
    )
    subspace: Kind = Field("balanced", description="hash of the subspaces: balanced, signed (as released) or roast")
    mlp_seed: int = Field(2023, description="hash seed of the perceptron's item table")
    gmf_seed: int = Field(6070, description="hash seed of the product's item table")
    hashes: int = Field(
        1,
        ge=1,
        description="hash functions among which devices are divided: 1 makes subspaces consistent; with as many as "
        "there are users every device has one of its own, and subspaces are inconsistent (the paper's ablation)",
    )
    reduce_offset: float = Field(
        0.0, ge=0, description="added to the number of elements in every mean of a slot; the released code has 0.001"
    )
    rank: Literal["width", "released"] = Field(
        "width", description="fedhm's rank: the width over the compression, or the released code's rounding of it"
    )
    scoring: Literal["server", "device"] = Field(
        "server", description="what is scored between rounds: the server's tables, or what a device's tier holds"
    )
    rating_offset: float = Field(0.0, description="public number that predicted ratings start from")

    @model_validator(mode="after")
    def _short_tiers_join_others(self) -> Self:
        if self.placement == "server" and self.min_clients > 1 and self.short == "lift":
            raise ValueError(
                f"short 'lift' changes the sum that a tier is in, and with placement 'server' there is one: use "
                f"'demote' or 'skip' with min_tier = {self.min_clients}"
            )
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        subspaces = self.variant in {"fair", "hom", "fedavg"}
        if self.placement == "tier" and not subspaces:
            why = "products of factors do not add up in a tier" if self.variant == "fedhm" else "it has no subspaces"
            raise ValueError(f"placement 'tier' does not fit variant {self.variant!r}, as {why}: use 'server'")
        if self.placement == "tier" and self.subspace != "balanced":
            raise ValueError(
                f"placement 'tier' needs slots of equal weight, which subspace {self.subspace!r} does not have: use "
                f"'balanced', or placement 'server'"
            )
        if self.hashes > 1 and (self.placement == "tier" or not subspaces):
            raise ValueError(
                f"hashes = {self.hashes} divides subspaces that add up in one table: use placement 'server' and "
                f"variant 'fair' or 'hom', or hashes = 1"
            )
        if self.budgets is not None and self.variant in {"fedhm", "heterofl"}:
            raise ValueError(f"budgets decide levels of subspaces, and {self.variant!r} has none: give a scheme")
        if self.budgets is None:
            try:
                scheme = Scheme.parse(self.scheme)
            except CapacityError as error:
                raise ValueError(f"scheme: {error}") from error
            if self.variant == "full_trn" and 0 not in scheme.levels:
                raise ValueError(
                    f"variant 'full_trn' trains on devices that hold everything, and scheme {self.scheme!r} has none: "
                    f"add 1x"
                )
        return self

    @property
    def model(self) -> NeuMF:
        """NeuMF for ranking; for ratings NeuMF-MLP with a bias."""
        ranking = self.task == "ranking"
        return NeuMF(self.dim, self.hidden, gmf=ranking, bias=not ranking)

    @property
    def unequal(self) -> bool:
        """Whether devices differ in what they hold, as far as settings tell: two budgets may lead to one level."""
        if self.variant in {"hom", "fedavg"}:
            return False
        return len(set(Scheme.parse(self.scheme).levels if self.budgets is None else self.budgets)) > 1

    @property
    def seeds(self) -> dict[str, int]:
        """Hash seed of every table."""
        return {"mlp": self.mlp_seed, "gmf": self.gmf_seed}

    @property
    def min_clients(self) -> int:
        """Clients of a round without which nobody trains in a tier."""
        if self.min_tier is not None:
            return self.min_tier
        return MIN_MEMBERS if self.placement == "tier" else 1

    @property
    def counts_tiers_first(self) -> bool:
        """Whether a round counts the members of each tier before it trains."""
        return self.min_clients > 1
