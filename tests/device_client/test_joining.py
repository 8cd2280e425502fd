"""A device in node joins masked sums over HTTP beside Python's clients, and each sum opens."""

import pytest

from secure_agg.masking.messages import Stage
from tests.device_client.aggregator import OURS, PEOPLE, POLICY, Aggregator, Device, residual


@pytest.mark.parametrize("leaver", [None, 4])
def test_sums_with_the_device_in_them_open_and_hold_its_history_under_noise(
    federation: Aggregator, device: Device, leaver: int | None
) -> None:
    assert federation.announce() == set(range(PEOPLE))
    noise = []
    for index in (0, 1):
        if index and leaver is not None:
            federation.peers[leaver].leaves_at = Stage.GO_AHEAD
        total, survivors = federation.sum_of(index)
        left = {leaver} if index and leaver is not None else set()
        assert set(survivors) == set(range(PEOPLE)) - left
        noise.append(residual(federation, index, total, [n for n in survivors if n != OURS]))
    (spent,) = device.end()
    for one, code in zip(noise, federation.codes, strict=True):
        assert code.distributed is not None
        assert 0.3 < one.var() / float(code.distributed.noise.client_variance) < 3
    assert spent["ledger"]["runs"] == 1
    assert 0 < spent["ledger"]["epsilon"] <= POLICY["epsilonPerYear"]
