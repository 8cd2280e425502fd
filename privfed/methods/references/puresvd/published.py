"""PureSVD as its paper has it for MovieLens."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {"paper, figure 2 (MovieLens): PureSVD50": {"dim": 50}},
    our_variant="rows of zeros and ones, as implicit feedback has them: the published model decomposes ratings",
)
