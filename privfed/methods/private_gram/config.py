"""Settings of `private-gram`, and the rule that turns public numbers into everything that is not set.

No constant is chosen by looking at the data of the run outside the budget. They follow from n (clients in a sum),
m (items) and mu, the inverse noise multiplier of the whole run: two data sets that differ in one user are as hard to
distinguish as two unit Gaussians at distance mu are. What depends on the data is decided by what was released already:
whether histories are long or short, and whether the head is known well enough, by the popularity of items; how weights
are made by two thinned copies of the Gram matrix (`model/choosing`). The rule itself was fixed on the validation parts
of MovieLens-1M and five other data sets; that choice is outside epsilon.
"""

import math
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from privfed.contracts import NoisySums
from privfed.methods.method import MethodConfig

_SMALLEST_HEAD = 50
_HEAD_WITH_CONTENT, _HEAD_ALONE = 10.0, 7.0
_DAMPING, _DAMPED_FROM, _DAMPED_REACH = 0.25, 0.75, 3_500
"""Without content popular items are damped from this mu on, or from this n mu."""
_SMOOTHING = 0.6
_SHARE, _LARGEST_SHARE = 0.1, 0.5
_PER_DONOR = 1 / 16
"""Head of donors: each counts as this much times the square of the factor of the head in n mu (`model/pooling`, with
c = 8, where the released noise and donors' errors of sampling weigh the same)."""
_SHORT = 5.0
"""Mean root of the number of items in a history below which histories are short: about 25 items."""
_FEW, _FEW_OF_LONG = 40, 20
"""Items that must stand out of the noise where histories are short, and where they are long."""
_AGAIN, _MOST_AGAIN, _LEAST_AGAIN = 0.1, 0.15, 0.03
"""Share of popularity in the second query, times the smaller of m / (2 n mu) and 1 / mu; the most, and what is too
little to ask for."""
STANDS_OUT, _BY_CHANCE = 3.0, 0.00135
"""Standard deviations above zero, and how many of noise alone are there."""


class PrivateGramConfig(MethodConfig):
    """Settings; null follows the rule."""

    histories: Literal["auto", "long", "short"] = Field(
        "auto",
        description="long: the whole outer product of a unit history; short: its off-diagonal part, and single pairs "
        "that stand out; auto: by the mean length of histories that the released popularity shows",
    )
    metadata: bool = Field(
        default=True, description="use public genres and years of the items where the data have them"
    )
    item_kernel: str | None = Field(
        None,
        description="a .npy, .npz or .csv file with a row of numbers per item, in the order of item ids: public "
        "embeddings, such as of texts, or a symmetric matrix of likenesses; a further kernel of content",
    )
    item_columns: tuple[str, ...] = Field(
        (),
        description="numeric columns of the item descriptions, instead of a file: embeddings from a DataFrame, as in "
        "privfed.load(ratings, items=frame)",
    )
    popularity_share: float | None = Field(
        None, gt=0, le=1, description="share of mu^2 for the popularity of items; 1 asks for nothing else"
    )
    head_share: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of the second query for the popularity of the head among each user's items on it; 0 asks "
        "for the Gram matrix alone",
    )
    min_items: int | None = Field(
        None,
        ge=0,
        description="items that must stand out of the noise on popularity, by rule more where histories are short; "
        "with fewer, the rest of the budget makes popularity more exact and there is no Gram matrix",
    )
    select: bool = Field(
        default=True,
        description="choose content, smoothing, pairs, what noise hides and how much of the head is used by how well "
        "weights from one half of the release predict the other; false: as set or by the rule",
    )
    donor_weight: float | None = Field(
        None,
        ge=0,
        le=1,
        description="weight of histories that people opened against the private sums; null weighs both by their errors",
    )
    check_donors: bool = Field(
        default=True,
        description="give histories that people opened less weight by as much as they differ from what was released "
        "about everybody else; false: the weight of the rule",
    )
    beyond_head: Literal["popularity", "content"] = Field(
        "popularity",
        description="how items outside the head are ranked: behind it, by popularity; or among it, by content alone, "
        "which makes the download larger (features are needed)",
    )
    head: int | None = Field(None, ge=2, description="most popular items whose Gram matrix is asked for")
    largest_head: int = Field(2048, ge=2, description="what the head may not exceed, however little noise there is")
    damping: float | None = Field(None, ge=0, le=1, description="an item counts popularity^-damping in a history")
    smoothing: float | None = Field(
        None, ge=0, lt=1, description="share of content in the prior that eigenvectors are smoothed with"
    )
    year_scale: float = Field(6.0, gt=0, description="difference in years at which items are hardly alike")
    rank: int = Field(64, ge=0, description="most eigenpairs; 0 leaves popularity and content alone")
    threshold: float = Field(0.6, ge=0, description="of single pairs (short histories), in expected largest noises")


@dataclass(frozen=True, slots=True)
class PrivateGramConstants:
    """Constants of a run: settings where given, else values that the rule derives from public numbers.

    Attributes:
        share: of mu^2 that popularity gets, and the second query what is left; 1 where there is no second query.
        again: share of the second query for popularity on the head.
        head: B, items of the Gram matrix; 0 where there is none.
        damping: a.
        smoothing: rho, where it is not chosen.
    """

    share: float
    again: float
    head: int
    damping: float
    smoothing: float

    @classmethod
    def from_config(
        cls, config: PrivateGramConfig, sums: NoisySums, items: int, *, content: bool, donors: int = 0
    ) -> "PrivateGramConstants":
        """The constants of a run.

        Args:
            config: settings.
            sums: n, and the noise that gives mu.
            items: m.
            content: whether public features are used.
            donors: people who opened their history, and so let the head reach further.
        """
        mu, reach = sums.mu, sums.clients * sums.mu
        share = config.popularity_share
        if share is None:
            share = min(max(_SHARE * math.sqrt(items / (2 * reach)), _SHARE), _LARGEST_SHARE)
        again = config.head_share
        if again is None:
            again = min(_AGAIN * items / (2 * reach), _AGAIN / mu, _MOST_AGAIN)
            again = again if again >= _LEAST_AGAIN else 0.0
        factor = _HEAD_WITH_CONTENT if content else _HEAD_ALONE
        known = reach + _PER_DONOR * factor**2 * donors
        wide = config.largest_head if math.isinf(mu) else max(_SMALLEST_HEAD, round(factor * math.sqrt(known)))
        head = min(wide, config.largest_head) if config.head is None else config.head
        damped = content or mu >= _DAMPED_FROM or reach >= _DAMPED_REACH
        return cls(
            share=share,
            again=again,
            head=0 if share == 1 else max(min(head, items - 1), 1),
            damping=(_DAMPING if damped else 0.0) if config.damping is None else config.damping,
            smoothing=(_SMOOTHING if content else 0.0) if config.smoothing is None else config.smoothing,
        )


@dataclass(frozen=True, slots=True)
class HeadShown:
    """Properties of the head that follow from the released popularity, at no further privacy cost.

    Attributes:
        root_length: mean over users of the root of how many items they have.
        standing_out: items that are more popular than noise can make them.
    """

    root_length: float
    standing_out: int

    @classmethod
    def from_popularity(cls, popularity: Float[Tensor, " items"], clients: float, deviation: float) -> "HeadShown":
        """Read the noisy sum of unit histories of so many clients."""
        above = int((popularity > STANDS_OUT * deviation).sum())
        by_chance = _BY_CHANCE * len(popularity) if deviation else 0.0
        return cls(float(popularity.sum()) / max(clients, 1.0), round(above - by_chance))

    def short(self, config: PrivateGramConfig) -> bool:
        """Whether histories are short."""
        return config.histories == "short" or (config.histories == "auto" and self.root_length < _SHORT)

    def few(self, config: PrivateGramConfig) -> bool:
        """Whether too few items stand out for a head."""
        least = config.min_items
        if least is None:
            least = _FEW if self.short(config) else _FEW_OF_LONG
        return self.standing_out < least
