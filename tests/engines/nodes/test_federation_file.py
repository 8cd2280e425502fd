"""The federation file: two parties are never one, and what it says binds whoever pins it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.node_data import NodeData

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "deploying.md"
KEYS = {f"{name}_PUB": str(place) * 64 for place, name in enumerate(("SERVER", "ALPHA", "BETA", "GAMMA"))}


def of_the_page() -> str:
    """The file that docs/guides/deploying.md shows, with keys in it."""
    [text] = re.findall(r"```toml\n(name = .*?)```", PAGE.read_text(), flags=re.DOTALL)
    for name, key in KEYS.items():
        text = text.replace(name, key)
    return text


def test_the_file_of_the_page_is_a_federation() -> None:
    federation = FederationFile.from_toml(of_the_page(), PAGE)
    assert [one.name for one in federation.organisations] == ["alpha", "beta", "gamma"]
    assert sum(len(federation.users(seat)) for seat in range(3)) == federation.population


@pytest.mark.parametrize(
    ("given", "instead", "says"),
    [
        ('users = "1000-1999"', 'users = "999-1999"', "two organisations host user 999"),
        ('users = "2000-2999"', 'users = "2000-3000"', "3000"),
        ('users = "0-999"', 'users = "0-99999999999999"', "users"),
        ('name = "beta"', 'name = "alpha"', "two parties have the same name"),
        ('name = "beta"', 'name = "server"', "two parties have the same name"),
        ("2" * 64, "1" * 64, "two parties have the same key"),
        ("2" * 64, "0" * 64, "two parties have the same key"),
        ("min_organisations = 3", "min_organisations = 4", "no sum would ever be opened"),
        ("min_organisations = 3", "min_organisations = 2", "min_organisations"),
        ("version = 1", "version = 0", "version"),
        ("items = 1500", "item = 1500", "item"),
    ],
)
def test_a_federation_of_which_two_parties_are_one_is_none(given: str, instead: str, says: str) -> None:
    text = of_the_page()
    assert given in text
    with pytest.raises(StateError, match="is no federation file: ") as refused:
        FederationFile.from_toml(text.replace(given, instead), PAGE)
    assert says in str(refused.value)


def test_every_field_is_in_the_digest_and_spacing_is_not() -> None:
    text = of_the_page()
    federation = FederationFile.from_toml(text, PAGE)
    assert FederationFile.from_toml(federation.to_toml(), PAGE).digest == federation.digest
    changes = [("shops", "shoes"), ("version = 1", "version = 2"), ("corrupt = 1", "corrupt = 0"), ("3000", "3001")]
    changes += [("1500", "1501"), ("0-999", "0-998"), ("gaussian", "laplace"), ("3" * 64, "4" * 64), ("beta", "betas")]
    changes += [("items", "min_protocol = 2\nitems"), ("items", f'build = "{"a" * 64}"\nitems')]
    digests = {FederationFile.from_toml(text.replace(*change), PAGE).digest for change in changes}
    assert len(digests | {federation.digest}) == len(changes) + 1


def test_a_node_with_other_users_than_the_file_gives_it_does_not_start(federation: Callable[..., Any]) -> None:
    f = federation(rounds=1)
    for users in (f.shards[1], f.shards[0][:-1], np.append(f.shards[0], f.shards[1][:1])):
        with pytest.raises(StateError, match="other users than the federation file gives to node100"):
            f.node(100, data=NodeData.from_split(f.parts, users))
