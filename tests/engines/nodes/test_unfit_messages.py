"""Queries whose message the clients cannot use: they are refused, cost nothing, and honest work goes on."""

import numpy as np
import pytest
import torch

from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.queries import addressed
from privfed.federation import Message


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
