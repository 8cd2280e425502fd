"""Training on a device that a server may have sent anything: what comes of it, or that it failed."""

import logging

from privfed.federation import Call, Clients, FederationError, Message, perform
from privfed.updates import ClientUpdates

_log = logging.getLogger("privfed.nodes")


def trained(clients: Clients, call: Call, received: Message) -> ClientUpdates | None:
    """What users compute; None where one of them fails, or computes what the query's blocks cannot hold.

    Raises:
        FederationError: the query or the plan is wrong, whatever the data.
    """
    try:
        updates = perform(clients, call, received)
        usable = bool(updates.norms(2).isfinite().all()) and _within_bounds(updates)
    except FederationError:  # a wrong query or plan, whatever the data
        raise
    except Exception:  # which ones there are depends on data, so none may decide whether an answer leaves
        _log.debug("training failed", exc_info=True)
        return None
    return updates if usable else None


def _within_bounds(updates: ClientUpdates) -> bool:
    """Whether all whole numbers are within the bounds of their blocks, which the encoding relies on."""
    return all(
        block.bound is None or updates.largest(name) <= block.bound
        for name, block in updates.schema.items()
        if block.kind == "integer"
    )
