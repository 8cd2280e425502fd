"""What a generated data set is to be like, and those that have a name; `population` says how they are drawn."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

TERMS = "Generated from a seed: free to use, and about nobody."


class SyntheticSpec(BaseModel):
    """Specification of a generated data set.

    Attributes:
        name: Name of the data set; it contains "synthetic".
        n_users: Users.
        n_items: Size of the catalogue.
        mean_per_user: Mean number of interactions of a user (what comes out is up to 10 % lower).
        min_per_user: Fewest interactions of a user.
        popularity: Zipf exponent of item popularity.
        rank: Dimensions of taste.
        sharpness: Weight of taste against popularity.
        from_attributes: Share of the variance of taste that gender, age group and occupation explain.
        seed: Seed; equal specs give equal data (on one platform: floating point may differ between two).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern="synthetic")] = "synthetic"
    n_users: Annotated[int, Field(ge=1)] = 943
    n_items: Annotated[int, Field(ge=2)] = 1682
    mean_per_user: Annotated[float, Field(gt=0)] = 106
    min_per_user: Annotated[int, Field(ge=1)] = 20
    popularity: Annotated[float, Field(ge=0)] = 0.9
    rank: Annotated[int, Field(ge=1)] = 8
    sharpness: Annotated[float, Field(ge=0)] = 2.0
    from_attributes: Annotated[float, Field(ge=0, le=1)] = 0.3
    seed: Annotated[int, Field(ge=0)] = 0


class FunnelSpec(SyntheticSpec):
    """Specification of a generated data set: `SyntheticSpec`, with interactions as views, and the funnel below.

    Attributes:
        cart_share: Share of views that become carts.
        buy_share: Share of carts that become purchases.
        keenness: Weight of the user's liking (variance about 1) against logistic noise in both steps.
        without_view: Share of purchases that no view of the pair precedes.
    """

    name: Annotated[str, Field(pattern="synthetic")] = "synthetic-funnel"
    n_users: Annotated[int, Field(ge=1)] = 1000
    n_items: Annotated[int, Field(ge=2)] = 1500
    mean_per_user: Annotated[float, Field(gt=0)] = 70
    min_per_user: Annotated[int, Field(ge=1)] = 20
    cart_share: Annotated[float, Field(gt=0, le=1)] = 0.35
    buy_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    keenness: Annotated[float, Field(ge=0)] = 1.5
    without_view: Annotated[float, Field(ge=0, le=0.9)] = 0.2


SPECS = {
    "synthetic": SyntheticSpec(),
    "synthetic-small": SyntheticSpec(
        name="synthetic-small", n_users=120, n_items=200, mean_per_user=25, min_per_user=8, sharpness=3.0
    ),
}

FUNNELS = {
    "synthetic-funnel": FunnelSpec(),
    "synthetic-funnel-small": FunnelSpec(
        name="synthetic-funnel-small", n_users=150, n_items=200, mean_per_user=40, min_per_user=20, sharpness=3.0
    ),
}
