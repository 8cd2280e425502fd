"""`privfed federation`: what is made, signed and installed, and the sentences for what cannot be."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

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
