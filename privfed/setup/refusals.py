"""What a configuration cannot do, refused in one sentence before anything is built."""

from collections.abc import Collection

from privfed.compute.processes import Processes, ProcessesError
from privfed.contracts import Fidelity, Tap


def refuse_shared(processes: Processes, fidelity: Fidelity, taps: Collection[Tap]) -> None:
    """What several processes cannot do, because no one of them has everybody's messages.

    Raises:
        ProcessesError: it was asked for.
    """
    if processes.size > 1 and fidelity == "protocol":
        raise ProcessesError(
            "fidelity = 'protocol' runs every client's side of the masking protocol in one process: choose "
            "fidelity = 'exact', whose sums are the same, or start one process"
        )
    if processes.size > 1 and taps:
        raise ProcessesError(
            "taps copy what an adversary sees in one process: set taps.places = [], or start one process to attack"
        )
