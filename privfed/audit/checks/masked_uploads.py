"""What single masked uploads and shares look like to whoever receives them: uniform bytes, and never the same.

A simulation adds ring elements in the open unless it is told to run the protocol, so what hides them is tested here:
a few clients send zeros through the code that makes masks or shares, in two rounds. Whatever a message is then, its
mask is.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import numpy as np
from jaxtyping import UInt8
from scipy import stats

from privfed.audit.report.records import Check
from privfed.engines.aggregation import ShareDealer
from privfed.experiment import Experiment, RunResult
from privfed.privacy.mechanisms.masking import MIN_SUMMED
from secure_agg.encoding import Ring
from secure_agg.masking import ClientRequirements, MaskingClient, MaskingServer, Stage, Terms, choose_parameters
from secure_agg.masking.messages import Envelope
from secure_agg.masking.simulation import answer

P_VALUE = 1e-9
_CLIENTS, _LENGTH, _ROUNDS = 5, 4096, 2
_RUN, _LAYOUT = bytes(range(16)), bytes(32)
_VALUES, _KEY = 256, 32

Messages = Mapping[str, UInt8[np.ndarray, " bytes"]]
"""Who sent it when, in words -> the bytes of a mask or share."""


def check_masked_uploads(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Masks and shares of zeros, where the plan hides single uploads behind them."""
    del result
    mechanism = experiment.config.privacy.mechanism
    if mechanism.masking is not None:
        faults = [*_masked(mechanism.masking.bits)]
    elif mechanism.secret_sharing is not None:
        dealer = ShareDealer(mechanism.secret_sharing, _CLIENTS, experiment.streams, None, protocol=True)
        faults = [*_shared(dealer)]
    else:
        return
    yield Check(
        name="masks of single uploads",
        passed=not faults,
        detail=faults[0]
        if faults
        else f"what {_CLIENTS} clients sent in {_ROUNDS} rounds is uniform, nothing comes twice, and it adds up to "
        f"what was put in",
    )


def _masked(bits: int) -> Iterator[str]:
    """Faults of masked sums."""
    ring, sent, keys = Ring(bits), dict[str, UInt8[np.ndarray, " bytes"]](), dict[bytes, int]()
    for t in range(_ROUNDS):
        terms = Terms.from_parameters(
            choose_parameters(_CLIENTS), bits=bits, length=_LENGTH, run=_RUN, round=t, layout=_LAYOUT
        )
        requirements = ClientRequirements(min_clients=MIN_SUMMED, min_threshold=2, require_signatures=False)
        server = MaskingServer(terms, min_clients=MIN_SUMMED)
        clients = {number: MaskingClient(number, requirements, run=_RUN) for number in range(_CLIENTS)}
        requests = server.invite(list(clients))
        while (stage := server.awaits) is not None:
            for number, request in requests.items():
                reply = answer(clients[number], stage, request, ring.zeros(_LENGTH))
                if stage is Stage.MASKED_INPUT:
                    packed = np.frombuffer(reply, np.uint8)[-ring.packed_bytes(_LENGTH) :]
                    # Where numbers fill no whole byte, the last one has room to spare.
                    sent[f"client {number} in round {t + 1}"] = packed[:-1]
                if stage is Stage.ADVERTISEMENT:
                    body = bytes(Envelope.decode(reply).body)
                    for key in (body[at : at + _KEY] for at in range(len(body) - _KEY + 1)):
                        if keys.setdefault(key, t) != t:
                            yield f"client {number} makes the same key for its masks in round {t + 1} as before"
                server.receive(number, reply)
            requests = server.advance()
        if server.total.any():
            yield "masks do not cancel: zeros add up to something else"
    yield from _bytes(sent)


def _shared(dealer: ShareDealer) -> Iterator[str]:
    """Faults of shares."""
    ring, sent = Ring(dealer.mechanism.bits), dict[str, UInt8[np.ndarray, " bytes"]]()
    whole = max(dealer.mechanism.bits // 8, 1)
    for t in range(_ROUNDS):
        numbers, counts = np.arange(_CLIENTS), np.full(_CLIENTS, _LENGTH)
        shares = dealer.split(0, (t, 0), numbers, counts, ring.zeros(_CLIENTS * _LENGTH))
        if ring.sum(shares).any():
            yield "shares do not add up: of zeros they come to something else"
        for place, share in enumerate(shares):
            for number, own in enumerate(np.split(share, _CLIENTS)):
                seen = own.astype(own.dtype.newbyteorder("<")).view(np.uint8).reshape(_LENGTH, -1)[:, :whole]
                sent[f"share {place + 1} of client {number} in round {t + 1}"] = seen.reshape(-1)
    # Two shares of zero are each other's negative: of these, the first is enough.
    yield from _bytes({name: seen for name, seen in sent.items() if len(shares) > 2 or name.startswith("share 1")})


def _bytes(sent: Messages) -> Iterator[str]:
    """Bytes that are not uniform, or come again in another message."""
    level = P_VALUE / len(sent) ** 2
    for name, seen in sent.items():
        often = np.bincount(seen, minlength=_VALUES)
        if stats.chisquare(often).pvalue < level:
            yield f"the mask of {name} is not uniform: {int(often.max())} of {len(seen)} bytes are the same"
            return
    for (one, left), (other, right) in combinations(sent.items(), 2):
        equal = int((left == right).sum())
        if stats.binom.sf(equal - 1, len(left), 1 / _VALUES) < level:
            yield f"the mask of {other} is that of {one} in {equal} of {len(left)} bytes, so subtracting removes it"
            return
