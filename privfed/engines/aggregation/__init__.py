"""How uploads are added up: one interface, and a strategy for every way in which they travel."""

from privfed.compute.memory import MemoryLimitError
from privfed.engines.aggregation.base import Aggregation, BlockSums, QueryContext
from privfed.engines.aggregation.held_blocks import HeldBlocks, HeldBlockSum
from privfed.engines.aggregation.individual_release import IndividualRelease, ReleaseBuffer
from privfed.engines.aggregation.masked_sum import MaskedSum
from privfed.engines.aggregation.plain_sum import AnalyticSum, PlainSum
from privfed.engines.aggregation.ring_sum import RingSum
from privfed.engines.aggregation.share_dealer import ShareDealer
from privfed.engines.aggregation.share_sum import ShareSum
from privfed.engines.aggregation.two_server_sum import TwoServerSum

__all__ = [
    "Aggregation",
    "AnalyticSum",
    "BlockSums",
    "HeldBlockSum",
    "HeldBlocks",
    "IndividualRelease",
    "MaskedSum",
    "MemoryLimitError",
    "PlainSum",
    "QueryContext",
    "ReleaseBuffer",
    "RingSum",
    "ShareDealer",
    "ShareSum",
    "TwoServerSum",
]
