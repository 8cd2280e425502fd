"""What a stranger can do at the address that a federation shows: nothing, or this says what.

A stranger has the address and the authority's public certificate. Every probe is an empty call, so that it does nothing
where it comes through: any other answer than 401 or 403 means that it reached the SuperLink. That a Fleet call without
a node's signature is answered 401 shows that the address is the federation's at all.
"""

import ssl
from pathlib import Path

import httpx

PROBES = {
    "register a node": "/v1/control/register-node",
    "run an app": "/v1/control/start-run",
    "list runs": "/v1/control/list-runs",
    "list nodes": "/v1/control/list-nodes",
    "read a run's log": "/v1/control/stream-logs",
    "stop a run": "/v1/control/stop-run",
    "unregister a node": "/v1/control/unregister-node",
    "take a run's task": "/v1/runtime/acquire-task",
}
"""What a stranger tries, and where."""

_FLEET, _SECONDS = "/v1/fleet/pull-messages", 30.0


class StrangersError(RuntimeError):
    """A stranger is let in, or nobody knows because nobody answers."""


def check_strangers(address: str, authority: Path) -> list[str]:
    """Try, as a stranger, everything that only the operator may do.

    Args:
        address: host and port that the nodes are given.
        authority: certificate that the nodes verify the server with.

    Returns:
        What was tried and refused.

    Raises:
        StrangersError: something was not refused, or the address is not that of a federation.
    """
    trusted = ssl.create_default_context(cafile=str(authority))
    with httpx.Client(base_url=f"https://{address}", verify=trusted, timeout=_SECONDS, trust_env=False) as client:
        if (answer := _status(client, _FLEET)) != 401:
            raise StrangersError(
                f"{address} answers {answer} to a node without a key, and not 401: name the address of the gateway"
            )
        if done := [what for what, path in PROBES.items() if _status(client, path) not in (401, 403)]:
            raise StrangersError(
                f"at {address} a stranger can {', '.join(done)}: let the network reach nothing but the gateway"
            )
    return list(PROBES)


def _status(client: httpx.Client, path: str) -> int:
    try:
        return client.post(path, headers={"content-type": "application/protobuf"}).status_code
    except httpx.HTTPError as error:
        raise StrangersError(f"{client.base_url} does not answer ({error}): name the address of the gateway") from error
