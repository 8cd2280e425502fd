"""Data: interactions with 0-based codes, per-user histories, splits, and the data sets that have a name.

interactions = load("ml-100k")
parts = split(interactions, SplitSpec(kind="leave_one_out"))
print(parts.describe())
"""

from typing import TYPE_CHECKING

from privfed.lazy import load_lazily

if TYPE_CHECKING:
    from privfed.data.attributes import ATTRIBUTES, Attribute, UserClasses, user_classes
    from privfed.data.catalogue import Dataset, Located, fetch, find, terms_once
    from privfed.data.donors import Donors
    from privfed.data.errors import DataError, DataWarning
    from privfed.data.frames import from_frames
    from privfed.data.funnel import generate_funnel
    from privfed.data.histories import Histories
    from privfed.data.interactions import DatasetCard, Interactions, build
    from privfed.data.loading import load
    from privfed.data.overview import Overview, overview
    from privfed.data.ratings import behaviours_from_ratings
    from privfed.data.reading import Reading
    from privfed.data.sources.id_lists import read_ids
    from privfed.data.split_spec import SplitSpec
    from privfed.data.splits import PartRatings, Split, default_fields, fitted, split
    from privfed.data.synthetic import generate
    from privfed.data.synthetic_spec import FunnelSpec, SyntheticSpec

__all__ = [
    "ATTRIBUTES",
    "Attribute",
    "DataError",
    "DataWarning",
    "Dataset",
    "DatasetCard",
    "Donors",
    "FunnelSpec",
    "Histories",
    "Interactions",
    "Located",
    "Overview",
    "PartRatings",
    "Reading",
    "Split",
    "SplitSpec",
    "SyntheticSpec",
    "UserClasses",
    "behaviours_from_ratings",
    "build",
    "default_fields",
    "fetch",
    "find",
    "fitted",
    "from_frames",
    "generate",
    "generate_funnel",
    "load",
    "overview",
    "read_ids",
    "split",
    "terms_once",
    "user_classes",
]

load_lazily(__name__)
