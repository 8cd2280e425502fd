"""DFMR: discrete federated multi-behaviour recommendation, and what is left of it without pairs or without balance.

Users and items are codes in {-1, +1}^d; purchases are public, examinations private. Behind shared sums the server
reveals, for every bit, sums over clients and nothing else. Everything sent is a whole number, so a run behind secret
sharing equals the plain one to the bit, as long as every examination trains and no row is suppressed for want of
clients. Objective and updates follow the DFMR slides, re-derived (`privfed.methods.dfmr.discrete`).

Exact sums show what few are behind. Where one client examined an item that nobody bought, the signs of the item's sums
are that client's code, bit for bit, however many others send the row as padding. `min_buyers` keeps
examinations of items with few buyers out of the sums.

    DFMR       pairs of purchase over examination over the rest
    DCF        no pairs (Zhang et al., SIGIR 2016), federated the same way
    LightFR    purchase-only codes, drawn at the start and not balanced, in the manner of Zhang et al., TOIS 2023
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from privfed.compute.devices import on_host
from privfed.contracts import MethodTraits
from privfed.data import Histories
from privfed.federation import Message
from privfed.methods.attack_surface import NoItemRows, RebuiltCodes
from privfed.methods.client_data import ClientData
from privfed.methods.dfmr.client import DFMRClients
from privfed.methods.dfmr.codes import unpack
from privfed.methods.dfmr.config import DCFConfig, DFMRConfig, LightFRConfig
from privfed.methods.dfmr.overflow import SumOverflowError
from privfed.methods.dfmr.published import AS_PUBLISHED, DCF_AS_PUBLISHED, LIGHTFR_AS_PUBLISHED
from privfed.methods.dfmr.reconstruction import STARTS, rebuild_codes
from privfed.methods.dfmr.server import BlocksError, DFMRServer, NoPurchasesError
from privfed.methods.method import Method, MethodConfig, PlannedQuery, ServerReads, Training
from privfed.methods.preset import PUBLISHED, Preset

_EVERYBODY = 1 << 20


class DFMRTraining(Training):
    """Codes are improved bit by bit, alternating between users and items; every sum is over whole numbers."""

    server = DFMRServer
    clients = DFMRClients
    step = None
    chunk = _EVERYBODY
    host_work = "every step on codes"

    def program(self, server: DFMRServer) -> Sequence[PlannedQuery]:
        """One query for users' sums and one for every bit of the items' codes."""
        return server.program()

    def examined(self, config: DFMRConfig, data: ClientData) -> Histories | None:
        """Behaviours that count as examinations; None where the settings name no behaviour."""
        return None if config.examinations == () else data.examined(config.examinations)

    def rows_sent(self, config: DFMRConfig, data: ClientData) -> float:
        """Purchases, and examinations that train."""
        learned = config.learned(data.examined(config.examinations), data.positives)
        return float(data.positives.union(learned).counts.mean())


class DFMRSurface(NoItemRows):
    """Uploads have no row per item; user codes can be rebuilt as far as public purchases determine them."""

    def rebuilt_codes(
        self, config: DFMRConfig, message: Message, public: Histories, users: Int64[np.ndarray, " n"]
    ) -> RebuiltCodes:
        """A device's own update on public purchases alone, from two starts."""
        guesses = {str(start): rebuild_codes(config, message, public, users, start) for start in STARTS}
        items = unpack(on_host(message.shared["codes"]), config.d)
        return RebuiltCodes("codes", guesses, guesses["purchased items"].astype(np.float32) @ items.T)


def _method(
    name: str, display_name: str, title: str, source: str, config: type[MethodConfig], published: Preset
) -> Method:
    return Method(
        name=name,
        title=title,
        display_name=display_name,
        source=source,
        config=config,
        traits=MethodTraits(release="total", upload="rows", integers=True, public_target=True),
        training=DFMRTraining(),
        attack_surface=DFMRSurface(),
        disclosure=ServerReads("every user's purchases, which it declares public, and sums over clients"),
        presets={PUBLISHED: published},
    )


DFMR = _method(
    "dfmr",
    "DFMR",
    "binary codes from public purchases and private examinations",
    "DFMR (slides)",
    DFMRConfig,
    AS_PUBLISHED,
)
DCF = _method(
    "dcf",
    "DCF",
    "binary codes from public purchases",
    "DCF, Zhang et al., SIGIR 2016",
    DCFConfig,
    DCF_AS_PUBLISHED,
)
LIGHTFR = _method(
    "lightfr",
    "LightFR",
    "binary codes from public purchases, not balanced",
    "LightFR-like",
    LightFRConfig,
    LIGHTFR_AS_PUBLISHED,
)

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
