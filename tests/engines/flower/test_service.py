"""A node behind a socket: bytes come through unchanged, and nobody's bad manners stop it."""

import logging
import os
import socket
import stat
import struct
import threading
import time
import tracemalloc
from contextlib import ExitStack, contextmanager, suppress

import pytest

from privfed.engines.flower.service import Limits, NodeService, ServiceError, TooLongError, query_service

LIMITS = Limits(2**24)


class Echo:
    def __init__(self):
        self.stages = []

    def handle(self, stage, request):
        self.stages.append(stage)
        if request == b"fail":
            raise RuntimeError("the disk is full")
        return stage.encode() + b"|" + request


@pytest.fixture
def served(tmp_path):
    echo, path = Echo(), tmp_path / "node.sock"
    with NodeService(echo, path, LIMITS) as service:
        thread = threading.Thread(target=service.serve)
        thread.start()
        yield path, echo
        service.close()
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.parametrize("request_", [b"", b"x", bytes(range(256)) * 4096])
def test_a_request_comes_back_whole(served, request_):
    path, echo = served
    assert query_service(path, "train.share", request_, 10) == b"train.share|" + request_
    assert echo.stages == ["train.share"]


def test_only_the_owner_may_open_the_socket(served, tmp_path):
    path, _ = served
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with NodeService(Echo(), tmp_path / "shared.sock", LIMITS, group_may_query=True):
        assert stat.S_IMODE((tmp_path / "shared.sock").stat().st_mode) == 0o660


def test_a_failing_node_answers_the_next_request(served, caplog):
    path, _ = served
    with pytest.raises(ServiceError, match="did not answer"):
        query_service(path, "train.share", b"fail", 10)
    assert query_service(path, "train.share", b"again", 10) == b"train.share|again"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 4) + b"a",
        struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc" + struct.pack("<Q", 0),
        struct.pack("<Q", 1) + b"a" + struct.pack("<Q", 2**40),
    ],
)
def test_malformed_requests_do_not_stop_it(served, sent, caplog):
    path, echo = served
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        caller.sendall(sent)
    assert query_service(path, "train.share", b"fine", 10) == b"train.share|fine"
    assert echo.stages == ["train.share"]


def test_nobody_there_is_said_in_a_sentence(tmp_path):
    with pytest.raises(ServiceError, match="start it with"):
        query_service(tmp_path / "nobody.sock", "train.share", b"", 1)


def test_a_node_that_is_started_again_in_time_gets_the_same_request(tmp_path):
    path, echo = tmp_path / "node.sock", Echo()
    first = socket.create_server(str(path), family=socket.AF_UNIX)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(query_service(path, "train.input", b"x", 60, patience=50)))
    asking.start()
    caller, _ = first.accept()
    caller.recv(1)
    caller.close()
    first.close()
    path.unlink()
    with NodeService(echo, path, LIMITS) as service:
        serving = threading.Thread(target=service.serve)
        serving.start()
        asking.join(timeout=30)
        service.close()
        serving.join(timeout=10)
    assert answers == [b"train.input|x"]
    assert echo.stages == ["train.input"]


def test_a_node_that_is_slow_is_not_asked_twice(tmp_path):
    path = tmp_path / "node.sock"
    with socket.create_server(str(path), family=socket.AF_UNIX) as slow:
        slow.settimeout(0.5)
        with pytest.raises(ServiceError, match="TimeoutError"):
            query_service(path, "train.input", b"x", 0.4, patience=30)
        slow.accept()[0].close()
        with pytest.raises(TimeoutError):
            slow.accept()


def test_a_socket_left_behind_is_taken_over_and_a_live_one_is_not(served, tmp_path):
    path, _ = served
    with pytest.raises(ServiceError, match="another process serves"):
        NodeService(Echo(), path, LIMITS)
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    with NodeService(Echo(), left, LIMITS):
        assert left.exists()
    assert not left.exists()


def test_a_path_too_long_for_a_socket_is_refused(tmp_path):
    with pytest.raises(ServiceError, match="longer than the 100 bytes"):
        NodeService(Echo(), tmp_path / ("x" * 120), LIMITS)


# Callers that want to be in the way ---------------------------------------------------------------------------------


@contextmanager
def serving(path, limits, handler=None):
    with NodeService(handler or Echo(), path, limits) as service:
        thread = threading.Thread(target=service.serve)
        thread.start()
        try:
            yield service
        finally:
            service.close()
            thread.join(timeout=10)
            assert not thread.is_alive()


def caller(stack, path, sent=b""):
    """A connection that has sent something, where it was not closed before, and now does nothing."""
    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
    connection.settimeout(10)
    connection.connect(str(path))
    with suppress(BrokenPipeError):
        connection.sendall(sent)
    return connection


def closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


STAGE = struct.pack("<Q", 11) + b"train.share"
CLAIM = STAGE + struct.pack("<Q", 2**20)
SLOW = [b"", b"\x0b", STAGE[:12], STAGE, CLAIM, CLAIM + b"x" * 1000]


def test_an_honest_caller_is_answered_beside_twenty_slow_ones(tmp_path):
    with ExitStack() as stack, serving(tmp_path / "node.sock", LIMITS):
        for number in range(20):
            caller(stack, tmp_path / "node.sock", SLOW[number % len(SLOW)])
        for turn in range(5):
            sent = b"%d" % turn
            assert query_service(tmp_path / "node.sock", "train.share", sent, 5) == b"train.share|" + sent


def test_who_reads_no_reply_holds_up_nobody(tmp_path):
    with serving(tmp_path / "node.sock", LIMITS), ExitStack() as stack:
        big = struct.pack("<Q", 2**23) + b"x" * 2**23
        for _ in range(8):
            caller(stack, tmp_path / "node.sock", STAGE + big)
        assert query_service(tmp_path / "node.sock", "train.share", b"fine", 20) == b"train.share|fine"


def test_the_node_itself_answers_one_request_at_a_time(tmp_path):
    class Counting:
        inside, most = 0, 0

        def handle(self, stage, request):
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.02)
            self.inside -= 1
            return b""

    node = Counting()
    with serving(tmp_path / "node.sock", LIMITS, node):
        asked = [
            threading.Thread(target=query_service, args=(tmp_path / "node.sock", "train.share", b"", 20))
            for _ in range(12)
        ]
        for each in asked:
            each.start()
        for each in asked:
            each.join()
    assert node.most == 1


def test_surplus_connections_are_closed_at_once_and_told_once(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with ExitStack() as stack, serving(tmp_path / "node.sock", Limits(2**20, connections=4)):
        held = [caller(stack, tmp_path / "node.sock", STAGE) for _ in range(4)]
        assert all(closed(caller(stack, tmp_path / "node.sock")) for _ in range(20))
        with pytest.raises(ServiceError, match="did not answer"):
            query_service(tmp_path / "node.sock", "train.share", b"fine", 10)
        held[0].close()
        assert query_service(tmp_path / "node.sock", "train.share", b"fine", 10, patience=10) == b"train.share|fine"
    assert sum("closed at once" in record.getMessage() for record in caplog.records) <= 2


def test_slow_callers_lose_their_places_to_a_patient_honest_one(tmp_path):
    limits = Limits(2**20, connections=4, idle=0.3, total=0.3)
    with ExitStack() as stack, serving(tmp_path / "node.sock", limits):
        for number in range(20):
            caller(stack, tmp_path / "node.sock", b"" if number >= 4 else STAGE)
        assert query_service(tmp_path / "node.sock", "train.share", b"fine", 10, patience=10) == b"train.share|fine"


def test_a_caller_that_trickles_meets_the_deadline_of_the_whole(tmp_path):
    with ExitStack() as stack, serving(tmp_path / "node.sock", Limits(2**20, idle=5.0, total=0.5)):
        slow = caller(stack, tmp_path / "node.sock", CLAIM)

        def trickle():
            for _ in range(200):
                slow.sendall(b"x")
                time.sleep(0.05)

        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle()


@pytest.mark.parametrize("claimed", [2**20 + 1, 2**30, 2**40, 2**64 - 1])
def test_a_length_beyond_the_limit_of_the_policy_is_refused_before_the_body(tmp_path, claimed):
    tracemalloc.start()
    with ExitStack() as stack, serving(tmp_path / "node.sock", Limits(2**20)):
        assert closed(caller(stack, tmp_path / "node.sock", STAGE + struct.pack("<Q", claimed)))
        assert query_service(tmp_path / "node.sock", "train.share", b"x" * 2**20, 10) == b"train.share|" + b"x" * 2**20
    assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("stage", [b"\x1b[2J", b"train.x\n", b"", b"Train", b"x" * 65, "\u0661".encode(), b"../../etc"])
def test_a_stage_of_another_form_never_reaches_the_node_nor_a_log(served, stage, caplog):
    path, echo = served
    with ExitStack() as stack:
        assert closed(caller(stack, path, struct.pack("<Q", len(stage)) + stage + struct.pack("<Q", 0)))
    assert query_service(path, "train.share", b"fine", 10) == b"train.share|fine"
    assert echo.stages == ["train.share"]
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_closing_waits_for_no_slow_caller(tmp_path):
    with ExitStack() as stack:
        with serving(tmp_path / "node.sock", LIMITS):
            for sent in SLOW:
                caller(stack, tmp_path / "node.sock", sent)
            assert query_service(tmp_path / "node.sock", "train.share", b"", 5) == b"train.share|"
            started = time.monotonic()
        assert time.monotonic() - started < LIMITS.idle / 2


# Replies ------------------------------------------------------------------------------------------------------------


@contextmanager
def replying(path, *pieces):
    """A node that sends these bytes whatever it is asked, a moment apart."""
    with socket.create_server(str(path), family=socket.AF_UNIX) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                try:
                    for piece in pieces:
                        connection.sendall(piece)
                        time.sleep(0.05)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(timeout=30)


@pytest.mark.parametrize("claimed", [2**20 + 1, 2**63, 2**64 - 1])
def test_a_reply_beyond_the_limit_is_refused_at_its_length_and_not_asked_for_again(tmp_path, claimed):
    path = tmp_path / "node.sock"
    with replying(path, struct.pack("<Q", claimed)), pytest.raises(ServiceError, match="TooLongError"):
        query_service(path, "train.share", b"", 20, patience=20, max_bytes=2**20)


def test_a_node_that_trickles_meets_the_deadline(tmp_path):
    path, started = tmp_path / "node.sock", time.monotonic()
    trickle = (struct.pack("<Q", 2**20), *([b"x"] * 60))
    with replying(path, *trickle), pytest.raises(ServiceError, match="TimeoutError"):
        query_service(path, "train.share", b"", 0.5)
    assert time.monotonic() - started < 30


def test_a_request_beyond_the_limit_is_not_sent(tmp_path):
    with pytest.raises(TooLongError, match="send less"):
        query_service(tmp_path / "nobody.sock", "train.share", b"x" * 11, 1, max_bytes=10)


# The socket's place -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_the_folder_of_the_socket_is_made_for_its_owner(tmp_path, umask):
    before = os.umask(umask)
    try:
        with NodeService(Echo(), tmp_path / "run" / "node.sock", LIMITS):
            assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
            assert stat.S_IMODE((tmp_path / "run" / "node.sock").stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mode", "group", "fits"), [(0o755, False, False), (0o750, False, False), (0o700, False, True),
                                                     (0o750, True, True), (0o710, True, True), (0o770, True, False),
                                                     (0o755, True, False)])  # fmt: skip
def test_a_folder_that_lets_others_at_the_socket_is_refused(tmp_path, mode, group, fits):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    if fits:
        with NodeService(Echo(), folder / "node.sock", LIMITS, group_may_query=group) as service:
            service.close()
        return
    with pytest.raises(ServiceError, match="lets others at the socket"):
        NodeService(Echo(), folder / "node.sock", LIMITS, group_may_query=group)


def test_a_file_that_is_no_socket_is_not_removed(tmp_path):
    (tmp_path / "users.pfn").write_bytes(b"precious")
    with pytest.raises(ServiceError, match="another file than a socket"):
        NodeService(Echo(), tmp_path / "users.pfn", LIMITS)
    assert (tmp_path / "users.pfn").read_bytes() == b"precious"
