"""`Preset`: settings of a method under a name, each with its source, such as those of its paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from privfed.contracts import Clipped, DefaultClip

PUBLISHED = "published"
"""Name of the preset with the settings of a method's paper, and of its released code where the paper is silent."""


Values = Mapping[str, Mapping[str, JsonValue]]
"""Source -> settings that it states."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings under a name.

    Attributes:
        values: source -> settings that it states; together all of the method, so that no default changes a preset.
        our_variant: difference between our model and the published one that no setting takes away, with the reason;
            None where there is none.
        upload_norms: median norms of the first uploads with these settings on MovieLens-100K, as
            `benchmarks.quality.upload_norms` measures them, by what is clipped.
    """

    values: Values
    our_variant: str | None = None
    upload_norms: Mapping[Clipped, float] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, JsonValue]:
        """All settings."""
        return {key: value for stated in self.values.values() for key, value in stated.items()}

    @property
    def sources(self) -> dict[str, str]:
        """Source of every setting."""
        return {key: source for source, stated in self.values.items() for key in stated}

    def clip(self, of_method: DefaultClip) -> DefaultClip:
        """The default clip norm with these settings: the method's share of the median norm, where that was measured."""
        if (median := self.upload_norms.get(of_method.clipped)) is None:
            return of_method
        share = of_method.of_median
        return replace(
            of_method,
            norm=float(f"{share * median:.2g}"),
            ground=f"{share:g} of the median norm of first uploads with these settings on MovieLens-100K, by rule",
        )
