"""DFMR: discrete federated multi-behaviour recommendation, and what is left of it without pairs or without balance.

Users and items are codes in {-1, +1}^d; purchases are public, examinations private. Behind shared sums the server
opens, for every bit, sums over clients and nothing else. Everything sent is a whole number, so a run behind secret
sharing equals the plain one to the bit, as long as every examination trains and no row stays closed for want of
clients. Objective and updates follow the DFMR slides, re-derived (`privfed.methods.dfmr.discrete`).

Exact sums show what few are behind. Where one client examined an item that nobody bought, the signs of the item's sums
are that client's code, bit for bit, whatever cover the client hides in among those who send the row. `min_buyers` keeps
examinations of items with few buyers out of the sums.

    DFMR       pairs of purchase over examination over the rest
    DCF        no pairs (Zhang et al., SIGIR 2016), federated the same way
    LightFR    purchase-only codes, drawn at the start and not balanced, in the manner of Zhang et al., TOIS 2023
"""

from privfed.methods.dfmr.clients import DFMRClients
from privfed.methods.dfmr.config import DCFConfig, DFMRConfig, LightFRConfig
from privfed.methods.dfmr.overflow import SumOverflowError
from privfed.methods.dfmr.server import BlocksError, DFMRServer, NoPurchasesError
from privfed.methods.method import Method, MethodConfig

_EVERYBODY = 1 << 20


def _method(name: str, title: str, source: str, config: type[MethodConfig]) -> Method:
    return Method(
        name=name,
        title=title,
        source=source,
        config=config,
        release="total",
        upload="rows",
        server=DFMRServer,
        clients=DFMRClients,
        reads="every user's purchases, which it declares public, and sums over clients",
        step=None,
        public_target=True,
        integers=True,
        program=DFMRServer.program,
        chunk=_EVERYBODY,
        host_work="every step on codes",
        item_block=None,
    )


DFMR = _method("dfmr", "binary codes from public purchases and private examinations", "DFMR (slides)", DFMRConfig)
DCF = _method("dcf", "binary codes from public purchases", "DCF, Zhang et al., SIGIR 2016", DCFConfig)
LIGHTFR = _method("lightfr", "binary codes from public purchases, not balanced", "LightFR-like", LightFRConfig)

__all__ = [
    "DCF",
    "DFMR",
    "LIGHTFR",
    "BlocksError",
    "DCFConfig",
    "DFMRClients",
    "DFMRConfig",
    "DFMRServer",
    "LightFRConfig",
    "NoPurchasesError",
    "SumOverflowError",
]
