"""Keys are rotated and members revoked by the commands, and nodes believe the newest signed file and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from privfed.cli import app
from privfed.engines.nodes import codec
from privfed.engines.nodes.administration import install, make_identity
from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.federation_file import read_federation, write_federation
from privfed.engines.nodes.files import make_folder
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.party import Party

COUNT = 4


class Claiming:
    """Whoever agrees to take part, under some key.

    Args:
        party: that it claims to be.
    """

    def __init__(self, party: Party) -> None:
        self.party = party

    def handle(self, stage: str, request: bytes) -> bytes:
        """Agree."""
        del stage
        return self.party.frame("reply", codec.reply(request, self.party.seat, {"nonce": "0" * 32}))


class Parties:
    """A federation whose every party has a folder of its own, changed by commands alone.

    Attributes:
        f: the federation that it begins with.
        operator: folder of the operator, with its key and the signed federation.
    """

    def __init__(self, f: Any, folder: Path) -> None:
        self.f, self.folder, self.operator = f, folder, folder / "operator"
        make_folder(self.operator)
        (self.operator / "identity.key").write_bytes(f.operator.private_bytes())
        federation = f.server.federation
        write_federation(self.operator, federation, federation.signature(f.operator), f.operator.public)
        for name, party in [("server", f.server), *((f"node{n}", one) for n, one in f.parties.items())]:
            make_folder(self.of(name))
            party.save(self.of(name), federation.signature(f.operator), f.operator.public)

    def of(self, name: str) -> Path:
        """A party's folder."""
        return self.folder / name

    def command(self, *words: object) -> None:
        """Run `privfed federation` with these words."""
        result = CliRunner().invoke(app, ["federation", *map(str, words)])
        assert result.exit_code == 0, result.stderr

    def change(self, *words: object) -> None:
        """Have the operator sign the next version."""
        self.command(*words, "--key", self.operator / "identity.key")

    def new_key(self, name: str) -> Path:
        """A new key of a party, which it has not installed yet; returns its folder."""
        self.command("keys", self.of(f"{name}-new"))
        return self.of(f"{name}-new")

    def install(self, name: str, *words: object) -> None:
        """Have a party take over what the operator signed last."""
        self.command("install", self.operator, self.of(name), *words)

    def node(self, number: int) -> Node:
        """A node that reads key and federation from its folder, as a process does that was started again."""
        return Node(self.of(f"node{number}"), self.f.policy, self.f.data[number])

    def nodes(self) -> dict[int, Node]:
        return {number: self.node(number) for number in self.f.data}

    def run(self, server: Any, nodes: dict[int, Any], party: Party | None = None) -> Any:
        """One round of counting; returns the federation."""
        self.f.server = party or Party.load(self.of("server"))
        remote = self.f.remote(InProcess(nodes))
        remote.opened = remote.run(server, 0)
        return remote


@pytest.fixture
def parties(federation: Callable[..., Any], tmp_path: Path) -> Parties:
    return Parties(federation(rounds=1, nodes=COUNT), tmp_path / "parties")


def test_a_rotated_key_works_and_the_old_one_is_refused(parties: Parties, count_server: Any) -> None:
    old, new = parties.node(100).party, parties.new_key("node100")
    parties.change("rotate", parties.operator, "node100", new / "identity.pub")
    for name in ("server", "node101", "node102", "node103"):
        parties.install(name)
    parties.install("node100", "--key", new / "identity.key")
    remote = parties.run(count_server(), parties.nodes())
    assert remote.opened
    assert set(remote.released.nodes) == {0, 1, 2, 3}
    current = read_federation(parties.of("node101"))
    assert current.seat_of(old.identity.public) is None
    for claim in (old, Party(current, old.identity, old.seat)):
        remote = parties.run(count_server(), {**parties.nodes(), 100: Claiming(claim)})
        assert remote.opened
        assert set(remote.released.nodes) == {1, 2, 3}
        assert {incident.reason for incident in remote.incidents} == {
            "the reply is not signed by node100 under this federation file; drop it"
        }
    (parties.of("node100") / "identity.key").write_bytes(old.identity.private_bytes())
    with pytest.raises(StateError, match="knows no party with the public key"):
        parties.node(100)


def test_nodes_refuse_requests_under_the_servers_old_key(parties: Parties, count_server: Any) -> None:
    old, new = Party.load(parties.of("server")), parties.new_key("server")
    parties.change("rotate", parties.operator, "server", new / "identity.pub")
    parties.install("server", "--key", new / "identity.key")
    for number in parties.f.data:
        parties.install(f"node{number}")
    assert parties.run(count_server(), parties.nodes()).opened
    current = Party.load(parties.of("server"))
    remote = parties.run(count_server(), parties.nodes(), Party(current.federation, old.identity, current.seat))
    assert not remote.opened
    assert {incident.code for incident in remote.incidents} == {"bad_signature"}
    assert len(remote.incidents) == COUNT


def test_a_revoked_organisation_is_not_heard(parties: Parties, count_server: Any) -> None:
    revoked = parties.node(101).party
    parties.change("revoke", parties.operator, "node101")
    for name in ("server", "node100", "node102", "node103"):
        parties.install(name)
    nodes = {number: parties.node(number) for number in (100, 102, 103)}
    current = nodes[102].party
    assert current.seat == 1, "seats follow the order in the file"
    # It has the new file and claims the seat that it had, or still has the old file.
    for claim in (Party(current.federation, revoked.identity, 1), revoked):
        remote = parties.run(count_server(), {**nodes, 101: Claiming(claim)})
        assert remote.opened
        assert set(remote.released.nodes) == {0, 1, 2}
        assert {incident.node for incident in remote.incidents} == {"101"}
    with pytest.raises(StateError, match="knows no party with the public key"):
        install(parties.operator, parties.of("node101"))


def test_a_node_goes_back_to_no_older_version(parties: Parties) -> None:
    first = parties.of("first")
    make_folder(first)
    federation = read_federation(parties.operator)
    signature = federation.signature(parties.f.operator)
    write_federation(first, federation, signature, parties.f.operator.public)
    parties.change("revoke", parties.operator, "node103")
    parties.install("node100")
    parties.node(100)
    with pytest.raises(StateError, match="version 2 is pinned already and this is version 1"):
        install(first, parties.of("node100"))
    write_federation(parties.of("node100"), federation, signature, parties.f.operator.public)
    with pytest.raises(StateError, match="version 1 and version 2 was pinned here before"):
        parties.node(100)


def test_a_file_of_a_foreign_operator_is_refused_by_a_party_and_its_node(parties: Parties) -> None:
    foreign = make_identity(parties.of("foreign"))
    federation = read_federation(parties.operator).model_copy(update={"version": 2})
    write_federation(parties.of("foreign"), federation, federation.signature(foreign), foreign.public)
    before = {path.name: path.read_bytes() for path in parties.of("node100").iterdir() if path.is_file()}
    with pytest.raises(StateError, match="is not signed by the operator with the key"):
        install(parties.of("foreign"), parties.of("node100"))
    assert {path.name: path.read_bytes() for path in parties.of("node100").iterdir() if path.is_file()} == before
    write_federation(parties.of("node100"), federation, federation.signature(foreign), parties.f.operator.public)
    with pytest.raises(StateError, match="is not signed by the operator"):
        parties.node(100)
