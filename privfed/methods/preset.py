"""`Preset`: settings of a method under a name, each with its source, such as those of its paper."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

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
    """

    values: Values
    our_variant: str | None = None

    @property
    def settings(self) -> dict[str, JsonValue]:
        """All settings."""
        return {key: value for stated in self.values.values() for key, value in stated.items()}

    @property
    def sources(self) -> dict[str, str]:
        """Source of every setting."""
        return {key: source for source, stated in self.values.items() for key in stated}
