"""Linkability: is the person behind this pseudonym the one behind that, and who is like whom?"""

from attacks.linkability.linking import Linked, linked, measure_links, profiles, share_named, smoothed_profiles
from attacks.linkability.neighbourhoods import nearest, neighbour_auc

__all__ = [
    "Linked",
    "linked",
    "measure_links",
    "nearest",
    "neighbour_auc",
    "profiles",
    "share_named",
    "smoothed_profiles",
]
