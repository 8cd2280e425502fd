"""A node behind a socket: bytes come through unchanged, and nobody's bad manners stop it."""

import socket
import stat
import struct
import threading

import pytest

from privfed.engines.flower.service import NodeService, ServiceError, query_service


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
    with NodeService(echo, path) as service:
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
    with NodeService(Echo(), tmp_path / "shared.sock", group_may_query=True):
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
    with NodeService(echo, path) as service:
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
        NodeService(Echo(), path)
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    with NodeService(Echo(), left):
        assert left.exists()
    assert not left.exists()


def test_a_path_too_long_for_a_socket_is_refused(tmp_path):
    with pytest.raises(ServiceError, match="longer than the 100 bytes"):
        NodeService(Echo(), tmp_path / ("x" * 120))
