"""Settings of DFMR and of what it becomes without its pairs (DCF) or without rows that balance its codes."""

from typing import Literal, Self

import numpy as np
from jaxtyping import Float64
from pydantic import ConfigDict, Field, model_validator

from privfed.data import Histories
from privfed.methods.dfmr.discrete import IntegerGrid
from privfed.methods.method import MethodConfig

REST_PER_PURCHASE = 0.1
"""What all that a user did not purchase weighs, over the weight of its purchases, for each of them: by validation on
seven catalogues (`benchmarks.quality.defaults --only dcf dfmr`)."""


class DFMRConfig(MethodConfig):
    """Objective, codes and schedule; `published` has the setting for JD.

    `s` and `c0` were chosen on the validation parts of seven catalogues (`benchmarks.quality.defaults`), the others on
    JD's. `s` is a rule of public numbers: what was not purchased outnumbers purchases by a factor that differs a
    hundredfold between catalogues, and short histories bear less of it, so no number serves two data sets.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    d: int = Field(32, ge=2, le=1024, description="bits of a code")
    w: float = Field(1.0, ge=0, description="weight of a purchase's squared error")
    s: float | None = Field(
        None,
        ge=0,
        description="weight of the squared error of everything that was not purchased; null: a tenth of the mean "
        "number of a user's purchases, times the share of all pairs that are purchases",
    )
    lam: float = Field(0.92, ge=0, le=1, description="share of pairs with a purchase, against those of examinations")
    c0: float = Field(1.0, ge=0, description="what the weights of all items' pairs add up to; 0 leaves DCF")
    exponent: float = Field(0.5, ge=0, le=10, description="an item's pairs weigh (purchases of it)^exponent")
    gamma1: float = Field(0.25, ge=0, le=1, description="margin of a purchase over an examination")
    gamma2: float = Field(0.75, ge=0, le=1, description="margin of a purchase over the rest")
    gamma3: float = Field(0.25, ge=0, le=1, description="margin of an examination over the rest")
    alpha: float = Field(0.0, ge=0, description="pull of user codes towards balanced, uncorrelated rows; 0 saves a sum")
    beta: float = Field(0.0, ge=0, description="the same for item codes")
    bits: int = Field(30, ge=1, le=60, description="F: weights are whole multiples of 2^-F, and sums are exact")
    blocks: int = Field(1, ge=1, description="blocks of items that a sweep decides one after another")
    guard: bool = Field(
        default=True,
        description="whether the objective is summed around a sweep, and the sweep repeated with inertia, at twice the "
        "cost, if it rose; nothing is summed where c0 is 0, which cannot rise",
    )
    examinations: tuple[str, ...] | None = Field(
        None, description="behaviours that count as examinations; null: view where there is one, else all but purchases"
    )
    min_buyers: int = Field(
        3,
        ge=0,
        description="examinations of items that fewer users bought train nothing: the opened sums of an item with one "
        "examination and no buyer are that client's code, bit for bit; 0 trains on all, as published",
    )
    start: Literal["own", "server"] = Field(
        "own",
        description="own: devices draw their first codes, item codes come from public purchases; server: the server "
        "makes both from public purchases, as published, and so knows where every user's code began; users who are "
        "not in the first round draw theirs",
    )
    start_sweeps: int = Field(10, ge=0, description="least squares sweeps behind the first item codes; 0 draws them")

    @model_validator(mode="after")
    def _server_has_user_codes(self) -> Self:
        if self.start == "server" and not self.start_sweeps:
            raise ValueError(
                "start = 'server' takes user codes from least squares, of which start_sweeps = 0 makes none: choose "
                "start = 'own', or sweeps"
            )
        return self

    @property
    def guarded(self) -> bool:
        """Whether the objective is watched: without pairs, items decide independently and it cannot rise."""
        return self.guard and self.c0 > 0

    def learned(self, examined: Histories, purchases: Histories) -> Histories:
        """Examinations that train: those of items with `min_buyers` buyers or more."""
        kept = purchases.popularity()[examined.items] >= self.min_buyers
        return Histories.from_pairs(examined.owners[kept], examined.items[kept], examined.n_users, examined.n_items)

    def pair_weights(self, purchases: Histories) -> Float64[np.ndarray, "items"]:
        """c_i, a share of `c0` by how often each item was purchased."""
        counts = purchases.popularity().astype(np.float64)
        powers = np.where(counts > 0, counts**self.exponent, 0.0)
        return np.asarray(self.c0 * powers / max(powers.sum(), 1.0))

    def rest_weight(self, purchases: Histories) -> float:
        """`s`, by its rule where it is null."""
        if self.s is not None:
            return self.s
        users, pairs = max(purchases.n_users, 1), max(purchases.n_users * purchases.n_items, 1)
        return REST_PER_PURCHASE * (len(purchases) / users) * (len(purchases) / pairs)

    def grid(self, purchases: Histories) -> IntegerGrid:
        """The hyper-parameters in whole numbers, margins on the nearest step of 1/(2d)."""
        steps = 2 * self.d
        return IntegerGrid.from_parameters(
            purchases.n_items,
            self.d,
            w=self.w,
            s=self.rest_weight(purchases),
            lam=self.lam,
            c=self.pair_weights(purchases),
            gammas=(
                round(steps * self.gamma1) / steps,
                round(steps * self.gamma2) / steps,
                round(steps * self.gamma3) / steps,
            ),
            bits=self.bits,
        )


class DCFConfig(DFMRConfig):
    """DCF: no pairs, so examinations count as anything else that was not purchased."""

    c0: float = Field(0.0, ge=0, le=0, description="no pairs")
    alpha: float = Field(0.0, ge=0, description="pull of user codes towards balanced, uncorrelated rows; 0 saves a sum")
    examinations: tuple[str, ...] | None = Field((), description="none: DCF does not look at examinations")


class LightFRConfig(DCFConfig):
    """Codes from purchases alone, drawn at the start and without a balance term, in the manner of LightFR."""

    alpha: float = Field(0.0, ge=0, le=0, description="no pull")
    beta: float = Field(0.0, ge=0, le=0, description="no pull")
    start_sweeps: int = Field(0, ge=0, le=0, description="first codes are drawn")
