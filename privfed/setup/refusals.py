"""What a configuration cannot do, refused in one sentence before anything is built."""

from collections.abc import Collection

from privfed.compute.processes import Processes, ProcessesError
from privfed.contracts import Tap, Wire


def refuse_shared(processes: Processes, wire: Wire, taps: Collection[Tap]) -> None:
    """What several processes cannot do, because no one of them has everybody's messages.

    Raises:
        ProcessesError: it was asked for.
    """
    if processes.size > 1 and wire == "protocol":
        raise ProcessesError(
            "wire = 'protocol' runs every client's side of the masking protocol in one process: choose wire = 'exact', "
            "whose sums are the same words, or start one process"
        )
    if processes.size > 1 and taps:
        raise ProcessesError(
            "taps copy what an adversary sees in one process: set taps.places = [], or start one process to attack"
        )
