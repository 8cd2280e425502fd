"""NVFlare's privacy filters: what every client sends of its update.

Inputs are updates, one row per client. SVTPrivacy never returns from an update with fewer finite numbers than it has to
select, so it is audited with `extremes=False`.
"""

import logging
from typing import Any

import numpy as np

from attacks.mechanism.adapters.package import package
from attacks.mechanism.claim import Claim
from attacks.mechanism.release import Release

SVT = "nvflare.app_common.filters.svt_privacy"
PERCENTILE = "nvflare.app_common.filters.percentile_privacy"


def svt_claim(width: int, *, steps: int = 1, **settings: Any) -> Claim:
    """What SVTPrivacy's own accountant says of updates of this many numbers; it does not say which are neighbours."""
    made = package(SVT, "nvflare").SVTPrivacy(**settings)
    for _ in range(steps):
        _filtered(made, {"update": np.zeros(width)})
    return Claim(float(made.get_privacy_spent()), 0.0, "replace", steps=steps)


def svt(*, scalar: bool = False, **settings: Any) -> Release:
    """`SVTPrivacy` with these settings.

    Args:
        scalar: Whether the first number of an update is a weight of its own without dimensions.
        settings: Arguments of the filter.
    """
    return _release(package(SVT, "nvflare").SVTPrivacy, settings, scalar=scalar)


def percentile(*, scalar: bool = False, **settings: Any) -> Release:
    """`PercentilePrivacy`, which claims no epsilon.

    Args:
        scalar: Whether the first number of an update is a weight of its own without dimensions.
        settings: Arguments of the filter.
    """
    return _release(package(PERCENTILE, "nvflare").PercentilePrivacy, settings, scalar=scalar)


def _release(kind: Any, settings: dict[str, Any], *, scalar: bool) -> Release:
    def release(updates: Any, generator: Any) -> list[Any]:
        del generator
        return [
            _filtered(kind(**settings), {"scalar": row[0], "update": row[1:]} if scalar else {"update": row})
            for row in updates
        ]

    return release


def _filtered(made: Any, weights: dict[str, Any]) -> Any:
    """Weights after a filter."""
    dxo = package("nvflare.apis.dxo", "nvflare")
    context = package("nvflare.apis.fl_context", "nvflare").FLContext()
    before = logging.root.manager.disable
    # The filters say for each call, at level INFO, how large the largest number is.
    logging.disable(logging.CRITICAL)
    try:
        sent = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, data=weights).to_shareable()
        return dict(dxo.from_shareable(made.process(sent, context)).data)
    finally:
        logging.disable(before)
