"""What does not fit the memory is refused before it is allocated, or made smaller where that changes nothing."""

import re

import pytest
import torch

from privfed.compute import memory
from privfed.compute.memory import MemoryLimitError, available_bytes, refuse_beyond_memory
from privfed.compute.tiles import TILE
from privfed.contracts import Block, upload_bytes
from privfed.data import Histories
from privfed.engines.aggregation import ReleaseBuffer
from privfed.federation import Streams
from privfed.federation.private_state import InMemory
from privfed.methods import PublicInfo, method
from privfed.methods.references.puresvd.model import item_factors
from privfed.methods.shared.vae_config import in_cache
from privfed.updates.chunking import DEFAULT_CHUNK

ITEMS = 60_000
PAIRS = {"fedcia": {}, "ease": {"max_items": None}, "private-gram": {"head": ITEMS}}


@pytest.fixture
def there(monkeypatch):
    """16 GiB, whatever the machine has."""
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**34)
    monkeypatch.setattr("privfed.methods.shared.vae_config.available_bytes", lambda: 2**34)


def test_a_container_may_leave_less_than_its_machine(monkeypatch, tmp_path):
    """Copies of files make way, so they are not in the way."""
    most, system = tmp_path / "most", tmp_path / "meminfo"
    most.write_text("5000\n"), system.write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    (tmp_path / "used").write_text("1500\n")
    (tmp_path / "memory.stat").write_text("anon 900\ninactive_file 500\n")
    monkeypatch.setattr(memory, "_CGROUPS", ((tmp_path, "most", "used", "inactive_file"),))
    monkeypatch.setattr(memory, "_MEMINFO", system)
    assert available_bytes() == 4000
    most.write_text("max\n")
    assert available_bytes() == 8192
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "missing")
    assert available_bytes() is None
    refuse_beyond_memory(2**80, "this", "do that")


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_a_large_catalogue_are_refused_before_they_are_made(name):
    registered = method(name)
    info = PublicInfo(1000, ITEMS)
    said = r"needs 67\.1 GiB \(7[12],\d{3},\d{3},\d{3} bytes\) .* 16\.0 GiB \(17,179,869,184 bytes\) are available: "
    with pytest.raises(MemoryLimitError, match=said) as caught:
        registered.training.server(registered.config(**PAIRS[name]), info, Streams.from_seed(1))
    assert re.match(rf"there is no memory for {name} .* items and matrices", str(caught.value))


@pytest.mark.usefixtures("there")
def test_lists_as_a_dense_table_are_refused():
    users = ITEMS
    lists = Histories.from_pairs(torch.arange(users).numpy(), torch.arange(users).numpy(), users, ITEMS)
    with pytest.raises(MemoryLimitError, match="set a smaller dim"):
        item_factors(lists, ITEMS)


@pytest.mark.usefixtures("there")
def test_uploads_of_everybody_are_refused_without_a_limit_too():
    with pytest.raises(
        MemoryLimitError, match=r"an individual release of 100,?000 uploads, which needs 22\.4 GiB .*: sample"
    ):
        ReleaseBuffer(None).uploads({"history": Block((ITEMS, 1))}, 100_000)


@pytest.mark.usefixtures("there")
def test_private_state_of_users_times_items_is_refused():
    def start(users):
        return {"table": torch.zeros(len(users), ITEMS)}

    with pytest.raises(MemoryLimitError, match=r"private state of 100,000 rows .*--client-state disk"):
        InMemory().keep("users", 100_000, start)
    assert InMemory().keep("users", 2, start).names == ("table",)


@pytest.mark.usefixtures("there")
def test_autoencoders_of_a_large_catalogue_train_fewer_clients_at_a_time():
    assert in_cache({"w": Block((2000, 4))}) >= DEFAULT_CHUNK
    large = {"w": Block((ITEMS, 600))}
    chunk = in_cache(large)
    assert TILE <= chunk < DEFAULT_CHUNK
    assert chunk % TILE == 0
    assert chunk == TILE or 4 * chunk * upload_bytes(large) <= 2**33
