"""Attribute inference: gender, age or occupation of users from what they upload."""

from attacks.attributes.evidence import activity, item_rows, popularity_blind, recovered_items, unit_rows
from attacks.attributes.gram import Gram, upload_gram
from attacks.attributes.inference import AttributeResult, EvidenceError, infer_attribute

__all__ = [
    "AttributeResult",
    "EvidenceError",
    "Gram",
    "activity",
    "infer_attribute",
    "item_rows",
    "popularity_blind",
    "recovered_items",
    "unit_rows",
    "upload_gram",
]
