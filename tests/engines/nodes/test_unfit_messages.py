"""Queries whose message the clients cannot use: they are refused, cost nothing, and honest work goes on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.nodes.errors import MessageError, RefusalCode
from privfed.engines.nodes.queries import addressed
from privfed.engines.simulation import TooFewClientsError
from privfed.federation import Message
from privfed.methods.shared.vae_server import COUNTS


@pytest.mark.parametrize("plan", ["none", "secure-sum:clip_norm=10.0", "local-laplace:epsilon0=5,clip_norm=1"])
def test_what_clients_fail_on_is_not_charged(
    federation: Callable[..., Any], count_server: Callable[[], Any], plan: str
) -> None:
    f = federation("feddae", plan)
    remote = f.remote()
    ask = remote.collect if plan.startswith("local") else remote.aggregate
    with pytest.raises(TooFewClientsError):
        ask("train", remote.sample_cohort(0), Message({}), {COUNTS: Block((70,))})
    assert {incident.code for incident in remote.incidents} == {RefusalCode.NODE_FAILED}
    assert not any(node.ledger_of(remote.announced.run).entries for node in f.nodes.values())
    assert not any(node.state.book.sequence for node in f.nodes.values())
    if not plan.startswith("local"):
        server = count_server()
        assert remote.run(server, 1)
        assert torch.equal(server.sums[-1][1], f.counts(np.arange(45)))


@pytest.mark.parametrize("rows", [(), (0, 2), (3, 2), (5, 2)])
def test_personal_tensors_have_a_row_for_everybody_and_no_more(rows: tuple[int, ...]) -> None:
    everybody = np.arange(10, 14)
    message = Message({}, {"rows": torch.zeros(rows)})
    with pytest.raises(MessageError, match="personal tensor 'rows' has shape"):
        addressed(message, everybody, everybody[:2])
    assert addressed(Message({}, {"rows": torch.zeros(4, 2)}), everybody, everybody[:2]).personal["rows"].shape == (
        2,
        2,
    )
