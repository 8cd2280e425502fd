"""`privfed serve`: what devices download, how it is served, and what never is."""

import hashlib
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import numpy as np
import pytest

import privfed
from privfed.api.publishing import DOSSIERS, LASTING, LATEST, MODELS, PublishedModel
from privfed.cli import static_server
from privfed.cli.static_server import StaticServer
from privfed.data import load
from privfed.dossier.making import make
from privfed.dossier.signature import problems_of, sign
from secure_agg.primitives.keys import Identity


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = privfed.run("private-gram", "synthetic-small", epsilon=8)
    return run.save(tmp_path_factory.mktemp("served") / "run")


@pytest.fixture(scope="module")
def model(folder: Path) -> PublishedModel:
    return PublishedModel.from_run(privfed.load_run(folder))


@pytest.fixture(scope="module")
def server(model: PublishedModel) -> Iterator[StaticServer]:
    with StaticServer(model.files, LASTING, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def inside(model: PublishedModel, name: str) -> bytes:
    return model.files[f"{MODELS}/{model.version}/{name}"]


def ask(server: StaticServer, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def raw(server: StaticServer, request: bytes, *, lenient: bool = False) -> bytes:
    """What comes back; where the server may go away before it has read all, as much as came."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as connection:
        try:
            connection.sendall(request)
            while part := connection.recv(4096):
                answer += part
        except OSError:
            assert lenient
    return answer


def test_every_file_is_named_by_a_digest_that_leads_back_to_the_version(model: PublishedModel) -> None:
    manifest = json.loads(inside(model, "manifest.json"))
    assert hashlib.sha256(inside(model, "manifest.json")).hexdigest() == model.version
    named = manifest["files"] | {f"{name}.bin": one["sha256"] for name, one in manifest["arrays"].items()}
    assert {name: hashlib.sha256(inside(model, name)).hexdigest() for name in named} == named
    assert set(model.files) == {
        LATEST,
        *(f"{MODELS}/{model.version}/{name}" for name in [*named, "manifest.json"]),
    }


def test_the_arrays_are_the_public_tensors_and_the_guarantee_is_the_runs(folder: Path, model: PublishedModel) -> None:
    run = privfed.load_run(folder)
    arrays = json.loads(inside(model, "manifest.json"))["arrays"]
    public = run.experiment.server.public().shared
    assert set(arrays) == set(public)
    for name, about in arrays.items():
        kind = np.dtype(about["dtype"]).newbyteorder("<")
        found = np.frombuffer(inside(model, f"{name}.bin"), kind).reshape(about["shape"])
        assert np.array_equal(found, public[name].numpy())
    assert json.loads(inside(model, "guarantee.json")) == run.guarantee.model_dump(mode="json")
    assert json.loads(inside(model, "items.json"))["ids"] == [str(one) for one in run.data.item_ids]


def test_nothing_that_no_guarantee_covers_is_in_it(folder: Path, model: PublishedModel) -> None:
    """No user id, no count or digest of the data, no quality, no seed and no path; of the guarantee its own words."""
    run, data = privfed.load_run(folder), load("synthetic-small")
    others = [json.loads(content) for path, content in model.files.items() if path.endswith(("card.json", LATEST))]
    manifest = json.loads(inside(model, "manifest.json"))
    text = json.dumps([others, {key: manifest[key] for key in ("format", "method", "items")}])
    assert set(others[0]) | set(others[1]) == {
        "method", "title", "source", "server_reads", "mechanism", "rounds", "data", "synthetic", "terms", "not_for",
        "privfed", "format", "version",
    }  # fmt: skip
    whole = b"".join(model.files.values()).decode("latin-1")
    assert data.card.sha256 not in whole
    assert run.config.digest() not in whole
    assert str(folder) not in whole
    assert f"{data.card.interactions:,}" not in whole
    for value in run.metrics["value"]:
        assert f"{value:.4f}" not in text
    assert '"seed"' not in whole


def test_a_file_is_served_with_a_strong_tag_and_kept_forever(server: StaticServer, model: PublishedModel) -> None:
    path = f"/{MODELS}/{model.version}/weights.bin"
    answer, content = ask(server, path)
    assert (answer.status, content) == (200, model.files[path[1:]])
    assert answer.headers["ETag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert {"Server", "Date", "Set-Cookie"}.isdisjoint(answer.headers)
    again, nothing = ask(server, path, If_None_Match=answer.headers["ETag"])
    assert (again.status, nothing) == (304, b"")
    head, nothing = ask(server, path, "HEAD")
    assert (head.status, nothing, head.headers["Content-Length"]) == (200, b"", str(len(content)))


def test_the_pointer_to_the_newest_version_is_kept_for_a_minute(server: StaticServer, model: PublishedModel) -> None:
    answer, content = ask(server, "/latest.json")
    assert answer.headers["Cache-Control"] == "public, max-age=60"
    assert json.loads(content) == {"format": 1, "version": model.version}


@pytest.mark.parametrize(
    "path",
    [
        "/", "/../etc/passwd", "/models/../latest.json", "/latest.json?history=1,2", "/latest.json/",
        "latest.json", "/%6catest.json", "/models", "/\\latest.json",
    ],
)  # fmt: skip
def test_what_is_not_a_file_of_the_model_is_not_there_and_is_not_repeated(server: StaticServer, path: str) -> None:
    answer = raw(server, f"GET {path} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 404 ")
    assert b"Content-Length: 0\r\n" in answer
    assert b"history" not in answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /latest.json HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 405),
        (b"PUT /latest.json HTTP/1.1\r\n\r\n", 405),
        (b"GET /" + b"a" * 4000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /latest.json HTTP/1.1\r\n" + b"A: b\r\n" * 80 + b"\r\n", 431),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /latest.json\r\n\r\n", 400),
    ],
    ids=["post", "put", "long line", "many headers", "nonsense", "HTTP/0.9"],
)
def test_anything_but_a_short_get_is_refused(server: StaticServer, request_: bytes, status: int) -> None:
    assert raw(server, request_).startswith(b"HTTP/1.0 %d " % status)


def test_nothing_is_written_down(server: StaticServer, capfd: pytest.CaptureFixture[str]) -> None:
    ask(server, "/latest.json")
    raw(server, b"GET /latest.json?history=7 HTTP/1.1\r\n\r\n")
    raw(server, b"\r\n")
    assert capfd.readouterr() == ("", "")


def test_a_static_export_is_the_same_tree_and_takes_a_second_version(
    cli: Callable, refused: Callable, folder: Path, model: PublishedModel, tmp_path: Path
) -> None:
    out = tmp_path / "public"
    for _ in range(2):
        assert cli("serve", folder, "--export", out, "--json").document["version"] == model.version
    found = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert found == model.files
    (out / LATEST).unlink()
    assert "is not empty" in refused("serve", folder, "--export", out)


def test_runs_that_devices_could_not_use_or_that_promise_nothing_are_refused(
    refused: Callable, trained: Path, tmp_path: Path
) -> None:
    assert "trains private parameters" in refused("serve", trained, "--export", tmp_path / "no")
    exact = privfed.run("popularity", "synthetic-small").save(tmp_path / "exact")
    assert "nothing is guaranteed" in refused("serve", exact, "--export", tmp_path / "no")
    (exact / "guarantee.json").unlink()
    assert "is not finished" in refused("serve", exact, "--export", tmp_path / "no")
    assert "holds no run" in refused("serve", tmp_path, "--export", tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_part_of_a_file_is_not_given_but_the_whole(server: StaticServer, model: PublishedModel) -> None:
    path = f"/{MODELS}/{model.version}/weights.bin"
    for wanted in ("bytes=0-3", "bytes=-1", "bytes=9-1,3", "lines=1"):
        answer, content = ask(server, path, Range=wanted)
        assert (answer.status, content) == (200, model.files[path[1:]])
        assert "Content-Range" not in answer.headers


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /latest.json HTTP/1.1\r\nA: " + b"b" * 40_000 + b"\r\n\r\n",
        b"GET /latest.json HTTP/1.1\r\n" + b"".join(b"A%d: %s\r\n" % (n, b"b" * 900) for n in range(60)) + b"\r\n",
    ],
    ids=["one", "many"],
)
def test_headers_of_more_bytes_than_are_read_are_refused(server: StaticServer, request_: bytes) -> None:
    answer = raw(server, request_, lenient=True)
    assert answer == b"" or answer.startswith(b"HTTP/1.0 431 ")


def test_a_body_is_neither_read_nor_written_down(server: StaticServer, capfd: pytest.CaptureFixture[str]) -> None:
    body = b"history=secret" * 1000
    head = b"GET /latest.json HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = raw(server, head + body, lenient=True)
    assert b"secret" not in answer
    assert raw(server, b"POST /latest.json?secret HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 405 ")
    assert capfd.readouterr() == ("", "")


def test_clients_that_trickle_are_let_go_and_others_are_served_meanwhile(
    model: PublishedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_server, "_SECONDS", 0.4)
    with StaticServer(model.files, LASTING, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        slow = [socket.create_connection(("127.0.0.1", server.server_port), timeout=5) for _ in range(20)]
        for connection in slow:
            connection.sendall(b"GET /latest.json HTTP/1.1\r\n")
        assert ask(server, "/latest.json")[0].status == 200
        ended = []
        for _ in range(200):
            for connection in slow:
                try:
                    connection.sendall(b"X")
                except OSError:
                    ended.append(connection)
            slow = [one for one in slow if one not in ended]
            if not slow:
                break
            time.sleep(0.02)
        assert not slow
        for connection in ended:
            connection.close()
        server.shutdown()
        thread.join()


def test_a_client_that_takes_a_large_file_slowly_gets_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second is allowed for a piece, and the whole takes longer."""
    monkeypatch.setattr(static_server, "_SECONDS", 0.3)
    content = bytes(range(256)) * (1 << 15)
    with StaticServer({"models/x.bin": content}, LASTING, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            connection.sendall(b"GET /models/x.bin HTTP/1.1\r\n\r\n")
            got = b""
            while part := connection.recv(1 << 18):
                got += part
                time.sleep(0.015)
        assert got.partition(b"\r\n\r\n")[2] == content
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def dossier(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(folder, tmp_path_factory.mktemp("dossier") / "made", pdf=False).folder


def test_the_dossier_of_the_run_is_served_whole_and_kept_forever_but_for_its_signatures(
    folder: Path, model: PublishedModel, dossier: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "signed"
    shutil.copytree(dossier, mine)
    identity = Identity.generate()
    sign(mine, "officer", identity)
    served = model.with_dossier(mine, folder)
    digest = json.loads(served.files[LATEST])["dossier"]
    place = f"{DOSSIERS}/{digest}"
    assert served.version == model.version
    assert hashlib.sha256(served.files[f"{place}/manifest.json"]).hexdigest() == digest
    there = {path.relative_to(mine).as_posix(): path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    assert {path.removeprefix(f"{place}/"): one for path, one in served.files.items() if DOSSIERS in path} == there
    assert there["evidence/guarantee.json"] == (folder / "guarantee.json").read_bytes()
    claim = json.loads(there["evidence/guarantee.json"])
    assert json.loads(inside(model, "guarantee.json"))["statements"] == claim["statements"]
    with StaticServer(served.files, LASTING, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        page, content = ask(server, f"/{place}/index.html")
        signature, _ = ask(server, f"/{place}/signatures/officer.json")
        server.shutdown()
        thread.join()
    assert (page.status, content) == (200, there["index.html"])
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert "script" not in page.headers["Content-Security-Policy"]
    assert signature.headers["Cache-Control"] == "public, max-age=60"
    served.write(tmp_path / "public")
    assert problems_of(tmp_path / "public" / place, {"officer": identity.public}) == []


def test_a_dossier_of_another_run_or_one_that_was_changed_is_not_served(
    cli: Callable, refused: Callable, folder: Path, dossier: Path, tmp_path: Path
) -> None:
    told = cli("serve", folder, "--dossier", dossier, "--export", tmp_path / "public")
    assert "which the guarantee may not cover" in told.err
    other = privfed.run("private-gram", "synthetic-small", epsilon=4).save(tmp_path / "other")
    assert "is about another run" in refused("serve", other, "--dossier", dossier, "--export", tmp_path / "no")
    changed = tmp_path / "changed"
    shutil.copytree(dossier, changed)
    (changed / "index.html").write_text("all is well")
    assert "index.html was changed" in refused("serve", folder, "--dossier", changed, "--export", tmp_path / "no")
    link = tmp_path / "link"
    shutil.copytree(dossier, link)
    (link / "answers.json").unlink()
    (link / "answers.json").symlink_to(folder / "run.json")
    assert "answers.json" in refused("serve", folder, "--dossier", link, "--export", tmp_path / "no")
    assert "holds no dossier" in refused("serve", folder, "--dossier", tmp_path, "--export", tmp_path / "no")
    assert not (tmp_path / "no").exists()
