"""Private state in files does what private state in memory does, at any size of shard, and leaves nothing half."""

import contextlib
import fcntl
import gc
import json
import os
import sys
from errno import ENOSPC

import pytest
import torch

from privfed.federation import MEMORY, ClientStateError, PrivateState, ShardFolder, alike, sharded_state

USERS = 23
KINDS = {"w": (3, 2), "b": ()}
SIZES = {"one user in a shard": 1, "some users": 700, "all users": 10**6}


def start(users):
    """Everybody starts from something else."""
    own = users.double() / 7
    return {"w": own.view(-1, 1, 1).repeat(1, 3, 2).float(), "b": own}


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def folder(request, tmp_path):
    return ShardFolder(tmp_path / "state", "a run", request.param)


@pytest.fixture
def both(folder):
    return MEMORY.keep("users", USERS, start), folder.keep("users", USERS, start)


def users(*ids):
    return torch.tensor(ids, dtype=torch.int64)


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert one[name].equal(other[name]), name


def shards(folder):
    return sorted(path.name for path in folder.path.glob("*.shard"))


def test_the_same_history_as_in_memory(both):
    """Operations in any order: what is seen after each is what memory shows."""
    draw = torch.Generator().manual_seed(5)
    seen = 0
    for _ in range(150):
        what, some = (int(torch.randint(end, (1,), generator=draw)) for end in (6, USERS))
        who = torch.randperm(USERS, generator=draw)[:some]
        new = {"w": torch.rand(some, 3, 2, generator=draw), "b": torch.rand(some, generator=draw).double()}
        if what == 0:
            new.pop("b")
        for state in both:
            if what < 3:
                state.stage(who, new)
                assert state.staged(who).keys() == new.keys()
                same(state.staged(who), new)
            elif what < 5:
                state.commit()
            else:
                state.discard()
        seen += what == 3
        same(both[0].rows(who), both[1].rows(who))
        same(both[0].staged(who), both[1].staged(who))
    same(both[0].state(), both[1].state())
    assert seen
    assert not both[1].state()["b"].equal(start(torch.arange(USERS))["b"])


def test_nobody_is_an_answer_too(both):
    for state in both:
        state.stage(users(), start(users()))
        state.commit()
    same(both[0].rows(users()), both[1].rows(users()))


def test_an_aborted_round_leaves_no_trace(both):
    for state in both:
        state.stage(users(4, 20, 1), start(users(0, 0, 0)))
        state.discard()
        state.commit()
    same(both[0].state(), both[1].state())


def test_loading_replaces_what_is_committed_and_forgets_what_is_staged(both):
    saved = {name: values + 1 for name, values in start(torch.arange(USERS)).items()}
    for state in both:
        state.stage(users(3), start(users(9)))
        state.commit()
        state.stage(users(3), start(users(9)))
        state.load(saved)
        state.commit()
    same(both[1].state(), saved)
    same(both[0].state(), both[1].state())


def test_ranges_are_read_some_at_a_time(both):
    for name, values in both[1].ranges().items():
        assert tuple(values.shape) == (USERS, *KINDS[name])
        assert values[5:9].equal(both[0].ranges()[name][5:9])


def test_first_values_are_drawn_some_users_at_a_time_and_only_when_somebody_needs_them(tmp_path, monkeypatch):
    asked = []

    def noted(some):
        asked.append(some.tolist())
        return start(some)

    monkeypatch.setattr(sharded_state, "_AT_ONCE", 100)
    state = ShardFolder(tmp_path / "s", "run", 700).keep("users", USERS, noted)
    assert asked == [[]]
    state.rows(users(0))
    assert asked == [[], [0, 1, 2], [3, 4, 5], [6, 7]]
    state.rows(users(9, 2, 7))
    state.state()
    assert [user for some in asked for user in some] == list(range(USERS))


def test_no_file_is_larger_than_a_shard_and_few_are_mapped(tmp_path):
    folder = ShardFolder(tmp_path / "s", "run", 400)
    state = folder.keep("users", USERS, start)
    state.state()
    sizes = [path.stat().st_size for path in folder.path.glob("*.shard")]
    assert len(sizes) == state.shards == 6
    assert max(sizes) <= 400
    assert sum(sizes) == folder.nbytes
    assert len(state._mapped) <= 4


def test_a_user_who_is_larger_than_a_shard_has_one_alone(tmp_path):
    folder = ShardFolder(tmp_path / "s", "run", 10)
    state = folder.keep("users", 3, alike({"w": torch.arange(100.0)}))
    assert state.rows(users(2))["w"][0, 99] == 99
    assert len(shards(folder)) == 3


def test_two_states_share_a_folder_and_nothing_else(folder):
    one, other = folder.keep("users", USERS, start), folder.keep("entries", 50, alike({"rows": torch.ones(4)}))
    one.stage(users(1), start(users(5)))
    other.stage(users(49), {"rows": torch.zeros(1, 4)})
    other.commit()
    one.discard()
    same(one.state(), start(torch.arange(USERS)))
    assert other.state()["rows"].sum() == 49 * 4


def test_a_state_that_comes_after_the_claim_is_reserved_too(folder):
    folder.claim()
    state = folder.keep("users", USERS, start)
    same(state.state(), start(torch.arange(USERS)))


def test_clients_without_private_tensors_need_no_file(tmp_path):
    folder = ShardFolder(tmp_path / "s", "run")
    state = folder.keep("users", USERS, lambda users: {})
    assert type(state) is PrivateState
    assert state.state() == {}
    assert folder.nbytes == 0


def test_nothing_is_written_before_somebody_is_asked_for(folder):
    state = folder.keep("users", USERS, start)
    assert not folder.path.exists()
    folder.claim()
    assert len(shards(folder)) == state.shards


def test_what_is_over_is_removed(folder, tmp_path):
    folder.remove()
    state = folder.keep("users", USERS, start)
    state.rows(users(1))
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_are_left_alone(folder):
    state = folder.keep("users", USERS, start)
    state.rows(users(1))
    (folder.path / "letter").write_text("not ours")
    folder.remove()
    assert [path.name for path in folder.path.iterdir()] == ["letter"]


class TestFoldersThatCannotBeUsed:
    def test_a_file(self, tmp_path):
        (tmp_path / "s").write_text("a letter")
        with pytest.raises(ClientStateError, match="is a file: give a folder"):
            ShardFolder(tmp_path / "s", "run")
        assert (tmp_path / "s").read_text() == "a letter"

    @pytest.mark.parametrize("owner", [None, "{", "[]", '{"walk": 1}'])
    def test_somebody_elses(self, tmp_path, owner):
        (tmp_path / "users-00000.shard").write_text("not ours")
        if owner is not None:
            (tmp_path / "owner.json").write_text(owner)
        before = sorted(path.read_bytes() for path in tmp_path.iterdir())
        with pytest.raises(ClientStateError, match="is not empty and holds no client state"):
            ShardFolder(tmp_path, "run")
        assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == before

    def test_a_kill_before_the_owner_was_written_does_no_harm(self, tmp_path):
        (tmp_path / "owner.json").write_text("")
        state = ShardFolder(tmp_path, "run").keep("users", USERS, start)
        same(state.state(), start(torch.arange(USERS)))

    def test_a_second_kill_right_after_the_claim_leaves_the_owner_with_its_shards(self, tmp_path, monkeypatch):
        killed = ShardFolder(tmp_path, "run")
        held = killed.keep("users", USERS, start)
        killed.claim()
        del killed, held
        gc.collect()
        assert list(tmp_path.glob("*.shard"))
        again = ShardFolder(tmp_path, "run")
        really = fcntl.flock

        def dying(file, operation):
            really(file, operation)
            monkeypatch.setattr(json, "dumps", lambda *_: sys.exit("killed"))

        monkeypatch.setattr(fcntl, "flock", dying)
        with contextlib.suppress(SystemExit):
            again.claim()
        monkeypatch.undo()
        del again
        gc.collect()
        state = ShardFolder(tmp_path, "run").keep("users", USERS, start)
        same(state.state(), start(torch.arange(USERS)))

    def test_of_another_run(self, tmp_path):
        ShardFolder(tmp_path, "one run").claim()
        with pytest.raises(ClientStateError, match="holds client state of another run"):
            ShardFolder(tmp_path, "another")
        assert json.loads((tmp_path / "owner.json").read_text()) == {"run": "one run"}

    def test_taken_by_another_run_in_the_meantime(self, tmp_path):
        late = ShardFolder(tmp_path, "another")
        ShardFolder(tmp_path, "one run").claim()
        with pytest.raises(ClientStateError, match="holds client state of another run"):
            late.claim()

    def test_of_this_run_while_it_goes_on(self, folder):
        state = folder.keep("users", USERS, start)
        folder.claim()
        twin = ShardFolder(folder.path, "a run")
        with pytest.raises(ClientStateError, match=r"another run keeps client state in .* right now"):
            twin.claim()
        same(state.state(), start(torch.arange(USERS)))

    def test_of_this_run_after_it_ended_is_begun_anew(self, tmp_path):
        former = ShardFolder(tmp_path, "run", 400)
        state = former.keep("users", USERS, start)
        state.stage(users(1), start(users(8)))
        state.commit()
        del state, former
        folder = ShardFolder(tmp_path, "run", 10**6)
        same(folder.keep("users", USERS, start).state(), start(torch.arange(USERS)))
        assert shards(folder) == ["users-00000.shard"]

    def test_less_room_than_is_needed(self, tmp_path):
        place = tmp_path / "s"
        with pytest.raises(ClientStateError, match=r"needs .* GiB in .*, and .* GiB are free there"):
            ShardFolder(place, "run").keep("users", 10**7, alike({"w": torch.zeros(10**6)}))
        assert not place.exists()

    def test_a_disk_that_fills_up_while_it_is_reserved(self, folder, monkeypatch):
        state = folder.keep("users", USERS, start)

        def full(*_):
            raise OSError(ENOSPC, os.strerror(ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(ClientStateError, match="refused \\(No space left on device\\)"):
            folder.claim()
        assert shards(folder) == []
        monkeypatch.undo()
        same(state.state(), start(torch.arange(USERS)))

    def test_a_checkpoint_of_other_users_or_settings(self, folder):
        state = folder.keep("users", USERS, start)
        with pytest.raises(ClientStateError, match="was expected, and the checkpoint holds"):
            state.load(start(torch.arange(4)))
        with pytest.raises(ClientStateError, match="was expected"):
            state.load({"w": torch.zeros(USERS, 3, 2)})
        same(state.state(), start(torch.arange(USERS)))
