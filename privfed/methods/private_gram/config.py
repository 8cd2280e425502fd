"""Settings of `private-gram`, and the rule that turns public numbers into everything that is not set.

No constant is chosen by looking at the data of the run. They follow from n (clients in a sum), m (items) and mu, the
inverse noise multiplier of the whole run: two data sets that differ in one user are told apart as two unit Gaussians at
distance mu are. The rule was fixed on the validation part of MovieLens-1M (long histories) and, for
short ones, on those of five data sets; that choice is outside epsilon.
"""

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from privfed.federation import NoisySums
from privfed.methods.method import MethodConfig

_SMALLEST_HEAD = 50
_HEAD_WITH_CONTENT, _HEAD_ALONE = 10.0, 7.0
_DAMPING, _DAMPED_FROM = 0.25, 0.75
_SMOOTHING = 0.6
_SHARE, _LARGEST_SHARE = 0.1, 0.5


class PrivateGramConfig(MethodConfig):
    """Settings; null follows the rule."""

    histories: Literal["long", "short"] = Field(
        "long",
        description="long: the whole outer product of a unit history; short: its off-diagonal part, more budget for "
        "the popularity of large catalogues, and single pairs that stand out",
    )
    metadata: bool = Field(
        default=True, description="use public genres and years of the items where the data have them"
    )
    popularity_share: float | None = Field(
        None, gt=0, le=1, description="share of mu^2 for the popularity of items; 1 asks for nothing else"
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
class Constants:
    """What a run uses: settings where they were given, else what the rule makes of public numbers.

    Attributes:
        share: of mu^2 that popularity gets, and the Gram matrix what is left; 1 where there is no Gram matrix.
        head: B, items of the Gram matrix; 0 where there is none.
        damping: a.
        smoothing: rho.
        diagonal: whether the diagonal is sent.
        threshold: of single pairs; None adds none.
    """

    share: float
    head: int
    damping: float
    smoothing: float
    diagonal: bool
    threshold: float | None

    @classmethod
    def of(cls, config: PrivateGramConfig, sums: NoisySums, items: int, *, content: bool) -> "Constants":
        """The constants of a run.

        Args:
            config: settings.
            sums: n, and the noise that gives mu.
            items: m.
            content: whether public features are used.
        """
        mu = mu_of(sums)
        reach = sums.clients * mu
        long = config.histories == "long"
        share = config.popularity_share
        if share is None:
            wanted = _SHARE if long else _SHARE * math.sqrt(items / (2 * reach))
            share = min(max(wanted, _SHARE), _LARGEST_SHARE)
        factor = _HEAD_WITH_CONTENT if content else _HEAD_ALONE
        wide = config.largest_head if math.isinf(mu) else max(_SMALLEST_HEAD, round(factor * math.sqrt(reach)))
        head = min(wide, config.largest_head) if config.head is None else config.head
        damped = content or mu >= _DAMPED_FROM
        return cls(
            share=share,
            head=0 if share == 1 else max(min(head, items - 1), 1),
            damping=(_DAMPING if damped else 0.0) if config.damping is None else config.damping,
            smoothing=(_SMOOTHING if content else 0.0) if config.smoothing is None else config.smoothing,
            diagonal=long,
            threshold=None if long else config.threshold,
        )


def mu_of(sums: NoisySums) -> float:
    """1 / (noise on a sum over the length of a whole upload); inf where sums are exact."""
    return math.inf if sums.deviation == 0 else unit_of(sums) / sums.deviation


def unit_of(sums: NoisySums) -> float:
    """The norm that a unit vector is sent with, so that no clip has to touch it: the clip norm; 1 without a clip."""
    return 1.0 if sums.clip_norm is None else sums.clip_norm
