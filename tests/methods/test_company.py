"""What a device uploads does not depend, by a single bit, on what is on the devices that are computed beside it."""

import numpy as np
import pytest
import torch

from privfed.data import Histories
from privfed.federation import Call, Streams, begin_query, perform
from privfed.methods import ClientData, PublicInfo, method

N_USERS, N_ITEMS = 20, 400
METHODS = {"fedpergnn": {"negatives": 4, "pseudo_items": 4, "max_history": 300}, "metamf": {"negatives": 4}}


def uploads(name, sizes):
    """Dense uploads of everybody after one step, where user u has so many items; what a user has does not vary."""
    orders = [np.random.default_rng(user).permutation(N_ITEMS) for user in range(N_USERS)]
    items = np.concatenate([order[:size] for order, size in zip(orders, sizes, strict=True)])
    owners = np.repeat(np.arange(N_USERS), sizes)
    data = ClientData(*[Histories.from_pairs(owners, items, N_USERS, N_ITEMS)] * 2)
    found, streams = method(name), Streams.of_party(bytes(32), bytes(32))
    config = found.config(**METHODS[name])
    server = found.training.server(config, PublicInfo(N_USERS, N_ITEMS), streams)
    clients, users = found.training.clients(config, data, streams), torch.arange(N_USERS)
    message = server.public().addressed_to(users)
    call = Call(0, 0, "train", 0, users, streams, server.schema)
    begin_query(clients, "train", message)
    return perform(clients, call, message).materialise(users)


@pytest.mark.parametrize("name", METHODS)
def test_no_bit_of_an_upload_depends_on_others_histories(name):
    sizes = np.random.default_rng(1).integers(20, 60, N_USERS)
    others = np.append(sizes[:3], np.random.default_rng(2).integers(1, N_ITEMS // 2, N_USERS - 3))
    one, other = uploads(name, sizes), uploads(name, others)
    assert any(not torch.equal(one[block][3:], other[block][3:]) for block in one)
    for block in one:
        assert torch.equal(one[block][:3], other[block][:3]), block
