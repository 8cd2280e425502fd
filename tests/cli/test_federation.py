"""`privfed federation`: what is made, signed and installed, and the sentences for what cannot be."""

import stat
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from privfed.engines.nodes.node_data import NodeData

NAMES = ("alpha", "beta", "gamma", "delta")
DRAFT = """# comments stay until a key is rotated
name = "shops"
version = 1
server = "{server}"
population = 400
items = 50
min_organisations = 3
"""
ORGANISATION = """
[[organisations]]
name = "{name}"
key = "{key}"
users = "{first}-{last}"
"""


@pytest.fixture
def shops(cli: Callable, tmp_path: Path) -> Path:
    """Folders of four organisations, a server and an operator, each with its key; the operator has signed version 1."""
    public = {name: cli("federation", "keys", tmp_path / name, "--quiet").out.strip() for name in (*NAMES, "server")}
    cli("federation", "keys", tmp_path / "key")
    text = DRAFT.format(server=public["server"]) + "".join(
        ORGANISATION.format(name=name, key=public[name], first=100 * place, last=100 * place + 99)
        for place, name in enumerate(NAMES)
    )
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "federation.toml").write_text(text)
    cli("federation", "sign", tmp_path / "operator", "--key", tmp_path / "key" / "identity.key")
    return tmp_path


@pytest.fixture
def change(cli: Callable, shops: Path) -> Callable:
    """The operator's commands."""
    return lambda *words, code=0: cli("federation", *words, "--key", shops / "key" / "identity.key", code=code)


def test_keys_are_secret_and_never_overwritten(cli: Callable, refused: Callable, tmp_path: Path) -> None:
    made = cli("federation", "keys", tmp_path / "new" / "alpha", "--json").document
    folder = tmp_path / "new" / "alpha"
    private = (folder / "identity.key").read_bytes()
    assert made == {"folder": str(folder), "public": (folder / "identity.pub").read_text().strip()}
    assert len(private) == 32
    assert len(bytes.fromhex(made["public"])) == 32
    assert stat.S_IMODE((folder / "identity.key").stat().st_mode) == 0o600
    assert "never overwritten" in refused("federation", "keys", folder)
    assert (folder / "identity.key").read_bytes() == private


def test_a_signed_federation_is_shown_and_an_altered_one_is_refused(
    cli: Callable, refused: Callable, shops: Path
) -> None:
    shown = cli("federation", "verify", shops / "operator", "--operator", shops / "key" / "identity.pub", "--json")
    assert [one["name"] for one in shown.document["federation"]["organisations"]] == list(NAMES)
    words = cli("federation", "verify", shops / "operator").out
    assert "shops, version 1" in words
    assert words.count("100") >= len(NAMES)
    file = shops / "operator" / "federation.toml"
    assert file.read_text().startswith("# comments stay")
    file.write_text(file.read_text().replace("0-99", "0-98"))
    assert "is not signed by the operator" in refused("federation", "verify", shops / "operator")


def test_every_change_is_a_version_of_its_own(cli: Callable, change: Callable, refused: Callable, shops: Path) -> None:
    folder, key = shops / "operator", shops / "key" / "identity.key"
    first = (folder / "federation.toml").read_text()
    new = cli("federation", "keys", shops / "alpha-2", "--quiet").out.strip()
    old = (shops / "alpha" / "identity.pub").read_text().strip()
    assert change("rotate", folder, "alpha", new, "--json").document["federation"]["version"] == 2
    assert new in (folder / "federation.toml").read_text()
    assert old not in (folder / "federation.toml").read_text()
    left = change("revoke", folder, "beta", "--json").document["federation"]
    assert (left["version"], [one["name"] for one in left["organisations"]]) == (3, ["alpha", "gamma", "delta"])
    change("rotate", folder, "server", cli("federation", "keys", shops / "server-2", "--quiet").out.strip())
    assert sorted(path.name for path in (folder / "signed").iterdir()) == [f"{n}.toml" for n in (1, 2, 3, 4)]
    assert (folder / "signed" / "1.toml").read_text() == first
    change("sign", folder)
    (folder / "federation.toml").write_text(first)
    assert "version 4 was signed already" in refused("federation", "sign", folder, "--key", key)
    (folder / "federation.toml").write_text(first.replace("version = 1", "version = 4"))
    assert "take a version above 4" in refused("federation", "sign", folder, "--key", key)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("rotate", "operator", "epsilon", "{gamma}"), "'epsilon' is no organisation of this federation"),
        (("rotate", "operator", "alpha", "{alpha}"), "that is the key of alpha already"),
        (("rotate", "operator", "server", "{gamma}"), "that is the key of gamma already"),
        (("rotate", "operator", "alpha", "abc"), "'abc' is no public key: give 64 hexadecimal digits"),
        (("rotate", "operator", "alpha", "g" * 64), "is no public key"),
        (("revoke", "operator", "server"), "'server' is no organisation"),
        (("revoke", "alpha", "beta"), "there is no federation.toml in"),
        (("sign", "nowhere"), "there is no federation.toml in"),
    ],
)
def test_what_cannot_be_changed_is_said_and_nothing_is_written(
    refused: Callable, shops: Path, words: tuple[str, ...], says: str
) -> None:
    before = (shops / "operator" / "federation.toml").read_bytes()
    public = {name: (shops / name / "identity.pub").read_text().strip() for name in ("alpha", "gamma")}
    command, folder, *others = words
    others = [word.format(**public) for word in others]
    given = ("federation", command, shops / folder, *others, "--key", shops / "key" / "identity.key")
    assert says in refused(*given)
    assert (shops / "operator" / "federation.toml").read_bytes() == before


def test_too_few_organisations_are_no_federation(change: Callable, refused: Callable, shops: Path) -> None:
    change("revoke", shops / "operator", "beta")
    before = {path: path.read_bytes() for path in (shops / "operator").rglob("*.*")}
    said = refused("federation", "revoke", shops / "operator", "alpha", "--key", shops / "key" / "identity.key")
    assert "organisations" in said
    assert {path: path.read_bytes() for path in (shops / "operator").rglob("*.*")} == before


def test_only_the_operator_changes_a_federation(refused: Callable, shops: Path) -> None:
    stolen = shops / "alpha" / "identity.key"
    for words in (("sign",), ("rotate", "alpha", "0" * 64), ("revoke", "alpha")):
        command, *others = words
        said = refused("federation", command, shops / "operator", *others, "--key", stolen)
        assert "another operator's key" in said


def test_a_party_installs_what_its_operator_signed(cli: Callable, change: Callable, shops: Path) -> None:
    operator = (shops / "key" / "identity.pub").read_text().strip()
    installed = cli("federation", "install", shops / "operator", shops / "alpha", "--operator", operator, "--json")
    assert (installed.document["party"], installed.document["federation"]["version"]) == ("alpha", 1)
    key = (shops / "alpha" / "identity.key").read_bytes()
    cli("federation", "keys", shops / "alpha-2")
    change("rotate", shops / "operator", "alpha", shops / "alpha-2" / "identity.pub")
    new = shops / "alpha-2" / "identity.key"
    assert "version 2" in cli("federation", "install", shops / "operator", shops / "alpha", "--key", new).out
    assert (shops / "alpha" / "identity.key").read_bytes() == new.read_bytes() != key
    assert stat.S_IMODE((shops / "alpha" / "identity.key").stat().st_mode) == 0o600
    assert "version 2" in cli("federation", "install", shops / "operator", shops / "alpha").out, (
        "once more does nothing"
    )
    assert "version 2" in cli("federation", "verify", shops / "alpha", "--operator", operator).out


def test_what_a_party_does_not_install(cli: Callable, change: Callable, refused: Callable, shops: Path) -> None:
    operator, source = shops / "key" / "identity.pub", shops / "operator"
    assert "no operator's key is pinned" in refused("federation", "install", source, shops / "alpha")
    foreign = ("federation", "install", source, shops / "alpha", "--operator", shops / "beta" / "identity.pub")
    assert "is not signed by the operator with the key" in refused(*foreign)
    assert not (shops / "alpha" / "federation.toml").exists()
    cli("federation", "install", source, shops / "alpha", "--operator", operator)
    said = refused("federation", "verify", source, "--operator", shops / "beta" / "identity.pub")
    assert "is not signed by the operator with the key" in said
    assert "pins another operator's key" in refused(*foreign)
    change("revoke", source, "alpha")
    assert "knows no party" in refused("federation", "install", source, shops / "alpha")
    cli("federation", "keys", shops / "lost")
    unknown = refused("federation", "install", source, shops / "lost", "--operator", operator)
    assert "knows no party with the public key" in unknown


def test_an_older_version_or_a_lost_key_is_not_installed(
    cli: Callable, change: Callable, refused: Callable, shops: Path
) -> None:
    source, folder = shops / "operator", shops / "beta"
    old = shops / "old"
    old.mkdir()
    for name in ("federation.toml", "federation.sig", "operator.pub"):
        (old / name).write_bytes((source / name).read_bytes())
    change("revoke", source, "delta")
    cli("federation", "install", source, folder, "--operator", shops / "key" / "identity.pub")
    assert "version 2 is pinned already and this is version 1" in refused("federation", "install", old, folder)
    assert "cannot be read" in refused("federation", "install", source, folder, "--key", shops / "none")
    (source / "federation.sig").write_text("no signature\n")
    assert "is not 64 bytes in hexadecimal digits" in refused("federation", "install", source, folder)


def test_keys_signatures_and_verification_need_no_torch(heavy_of: Callable, shops: Path) -> None:
    operator, key = shops / "operator", shops / "key" / "identity.key"
    assert "torch" not in heavy_of("federation", "keys", shops / "another")
    assert "torch" not in heavy_of("federation", "verify", operator)
    assert "torch" not in heavy_of("federation", "revoke", operator, "delta", "--key", key)
    assert "torch" not in heavy_of("federation", "sign", operator, "--key", key)


@pytest.fixture
def items(tmp_path: Path) -> Path:
    """A catalogue of 50 items with titles, in an order of its own."""
    path = tmp_path / "items.csv"
    path.write_text("item,title\n" + "".join(f"i{(7 * number) % 50},Film {number}\n" for number in range(50)))
    return path


def sales(path: Path, users: range, each: int = 4) -> Path:
    """A table in which user u has `each` items, the first of them i(u mod 50), newest last."""
    rows = [f"u{user},i{(user + step) % 50},{step}\n" for user in users for step in range(each)]
    path.write_text("user,item,timestamp\n" + "".join(rows))
    return path


@pytest.fixture
def node(cli: Callable, shops: Path) -> Path:
    """The folder of beta, who hosts users 100 to 199."""
    cli("federation", "install", shops / "operator", shops / "beta", "--operator", shops / "operator" / "operator.pub")
    return shops / "beta"


def test_an_organisation_writes_its_users_from_its_own_table(
    cli: Callable, node: Path, items: Path, tmp_path: Path
) -> None:
    table = sales(tmp_path / "sales.csv", range(500, 560))
    said = cli("federation", "users", node, "--table", table, "--items", items, "--json").document
    assert said == {"folder": str(node), "organisation": "beta", "users": 60, "new": 60, "interactions": 240}
    data = NodeData.load(node)
    assert (data.population, data.items, data.users.tolist()) == (400, 50, [*range(100, 200)])
    order = pd.read_csv(items)["item"].tolist()
    numbers = pd.read_csv(node / "numbers.csv").set_index("user")["number"]
    assert sorted(numbers) == [*range(100, 160)]
    for user, number in numbers.items():
        first = int(str(user)[1:])
        parts = (data.parts.train, data.parts.valid, data.parts.test)
        own = [order[item] for part in parts for item in part.items[part.indptr[number] : part.indptr[number + 1]]]
        assert own == [f"i{(first + step) % 50}" for step in range(4)]
    assert stat.S_IMODE((node / "numbers.csv").stat().st_mode) == 0o600
    assert data.parts.train.counts[:100].sum() == data.parts.train.counts[160:].sum() == 0


def test_users_keep_their_numbers_and_nobody_gets_one_that_was_anothers(
    cli: Callable, refused: Callable, node: Path, items: Path, tmp_path: Path
) -> None:
    def write(users: range) -> tuple[object, ...]:
        return "federation", "users", node, "--table", sales(tmp_path / "s.csv", users), "--items", items

    cli(*write(range(20, 60)))
    before = pd.read_csv(node / "numbers.csv").set_index("user")["number"].to_dict()
    assert "40 users (20 of them new) for 100 numbers" in cli(*write(range(40, 80))).out
    after = pd.read_csv(node / "numbers.csv").set_index("user")["number"].to_dict()
    assert {user: after[user] for user in before} == before
    assert sorted(after.values()) == [*range(100, 160)]
    train = NodeData.load(node).parts.train.counts
    assert all(train[after[f"u{user}"]] == 0 for user in range(20, 40))
    assert all(train[after[f"u{user}"]] == 2 for user in range(40, 80))
    said = refused(*write(range(200, 250)))
    assert "110 users were given, those who left included, and the federation file has 100 numbers" in said
    assert pd.read_csv(node / "numbers.csv").set_index("user")["number"].to_dict() == after


def test_what_does_not_fit_the_federation_is_refused(
    cli: Callable, refused: Callable, node: Path, items: Path, tmp_path: Path
) -> None:
    table = sales(tmp_path / "sales.csv", range(10))
    short = tmp_path / "short.csv"
    short.write_text("item\n" + "".join(f"i{number}\n" for number in range(49)))
    assert "has 49 items, and the federation file 50" in refused(
        "federation", "users", node, "--table", table, "--items", short
    )
    foreign = tmp_path / "foreign.csv"
    foreign.write_text(table.read_text() + "u3,tea,9\n")
    said = refused("federation", "users", node, "--table", foreign, "--items", items)
    assert "the item 'tea', which the catalogue has not" in said
    assert not (node / "users.pfn").exists()
    for content, reason in (
        ("user,number\nu1,300\n", "the number 300, which the federation file does not give"),
        ("user,number\nu1,100\nu2,100\n", "two users one number"),
        ("user,number\nu1,100\nu1,101\n", "one user two"),
        ("who\nu1\n", "does not say who has which number"),
    ):
        (node / "numbers.csv").write_text(content)
        assert reason in refused("federation", "users", node, "--table", table, "--items", items)
    cli(
        "federation",
        "install",
        tmp_path / "operator",
        tmp_path / "server",
        "--operator",
        tmp_path / "operator" / "operator.pub",
    )
    said = refused("federation", "users", tmp_path / "server", "--table", table, "--items", items)
    assert "is the server's, which hosts nobody" in said


def test_a_server_writes_the_catalogue_and_nobodys_history(
    cli: Callable, shops: Path, items: Path, tmp_path: Path
) -> None:
    out = tmp_path / "catalogue"
    said = cli("federation", "catalogue", shops / "operator", "--items", items, "--out", out).out
    assert "50 items for a federation of 400 users" in said
    data = NodeData.load(out)
    assert (data.population, data.items, len(data.users), len(data.parts.train)) == (400, 50, 0, 0)
    assert data.parts.item_info is not None
    assert data.parts.item_info["title"].tolist()[:2] == ["Film 0", "Film 1"]
