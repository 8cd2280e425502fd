"""What each half may hold: servers no data and no keys, uploads no more than was declared."""

import inspect
import types
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from privfed.data import Histories, Split
from privfed.engines.simulation import Simulation
from privfed.federation import PrivateState, StatefulClients, Streams
from privfed.methods import ClientData, PublicInfo, UnknownMethodError, method, methods
from privfed.methods.shared.samples import NegativeSampler

FORBIDDEN = (
    Histories, ClientData, Split, StatefulClients, PrivateState, NegativeSampler, Streams, Simulation,
)  # fmt: skip
LEAVES = (torch.Tensor, np.ndarray, str, bytes, int, float, bool, type(None), type, types.ModuleType)
NAMES = ["popularity", "fedmf", "fedncf", "pfedrec", "gpfedrec", "fedvae", "feddae", "multvae", "hetefedrec", "fair",
         "private-gram", "dpals", "private-autoencoder", "puresvd", "ials", "ease",
         "fedcia", "fedlightgcn", "fedpergnn", "metamf", "fedrap", "fedrecon", "colr",
         "mf", "neumf", "lightgcn", "sgl", "logmf", "recvae", "centdae"]  # fmt: skip


def reachable(root):
    """Every object reachable through attributes, slots, containers, bound methods and closures."""
    seen, todo = {}, [(root, "server")]
    while todo:
        thing, path = todo.pop()
        if id(thing) in seen or isinstance(thing, LEAVES):
            continue
        seen[id(thing)] = thing
        yield thing, path
        if isinstance(thing, dict):
            todo += [(value, f"{path}[{key!r}]") for key, value in thing.items()]
        elif isinstance(thing, list | tuple | set | frozenset):
            todo += [(value, f"{path}[{i}]") for i, value in enumerate(thing)]
        elif isinstance(thing, types.MethodType):
            todo += [(thing.__self__, f"{path}.__self__"), (thing.__func__, f"{path}.__func__")]
        elif isinstance(thing, types.FunctionType):
            todo += [(cell.cell_contents, f"{path}.closure") for cell in thing.__closure__ or ()]
        else:
            slots = [s for c in type(thing).__mro__ for s in getattr(c, "__slots__", ())]
            names = {*getattr(thing, "__dict__", {}), *(s for s in slots if hasattr(thing, s))}
            todo += [(getattr(thing, name), f"{path}.{name}") for name in names]


@dataclass(frozen=True, slots=True)
class Slotted:
    hidden: object


def test_the_walk_finds_what_is_hidden(world):
    """The test of the test: data held in a closure, a slot, a container or a bound method."""
    secret = world("fedmf").data
    for hiding in (
        {"a": [secret]},
        lambda: secret,
        types.SimpleNamespace(inner=(1, {"x": secret})),
        world("fedmf").clients.train,
        Slotted(secret),
    ):
        assert any(isinstance(thing, FORBIDDEN) for thing, _ in reachable(hiding))


@pytest.mark.parametrize("name", NAMES)
def test_a_server_holds_no_reference_to_data_clients_or_keys(world, name):
    w = world(name).train(2)
    found = [path for thing, path in reachable(w.server) if isinstance(thing, FORBIDDEN)]
    assert found == []


@pytest.mark.parametrize("name", NAMES)
def test_a_server_is_built_from_settings_two_numbers_and_what_is_public(name):
    registered = method(name)
    server = registered.training.server(registered.config(), PublicInfo(5, 9), Streams.from_seed(0))
    assert set(PublicInfo.__dataclass_fields__) == {"n_users", "n_items", "public", "sums", "item_info", "donors"}
    assert all("data" not in p for p in inspect.signature(registered.training.server).parameters)
    assert {type(t) for t in server.state().values()} == {torch.Tensor}


@pytest.mark.parametrize("name", NAMES)
def test_initial_public_parameters_do_not_depend_on_data(name):
    registered = method(name)
    states = [
        registered.training.server(registered.config(), PublicInfo(users, 9), Streams.from_seed(0)).public().shared
        for users in (3, 8)
    ]
    assert all(states[0][key].equal(states[1][key]) for key in states[0])


@pytest.mark.parametrize("name", NAMES)
def test_private_state_never_leaves(world, name):
    """Blocks that the server declares and state that clients keep have no name in common."""
    w = world(name)
    assert not set(w.server.schema) & set(w.clients.state())
    message = w.server.public()
    assert not (set(message.shared) | set(message.personal)) & set(w.clients.state())


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_a_save_and_load_into_fresh_halves(world, name):
    one = world(name).train(2)
    other = world(name)
    other.server.load({key: value.clone() for key, value in one.server.state().items()})
    other.clients.load({key: value.clone() for key, value in one.clients.state().items()})
    other.simulation.cohorts = one.simulation.cohorts
    one.train(3, first=2)
    other.train(3, first=2)
    for half in ("server", "clients"):
        found, wanted = getattr(other, half).state(), getattr(one, half).state()
        assert found.keys() == wanted.keys()
        assert all(found[key].equal(wanted[key]) for key in wanted)


def test_every_method_is_registered_under_its_own_name():
    assert set(NAMES) <= set(methods())
    for name, registered in methods().items():
        assert registered.name == name
        assert registered.traits.release in ("individual", "total")
        assert registered.title
        assert registered.source
        assert registered.disclosure.reads


def test_an_unknown_method_is_answered_with_those_there_are():
    with pytest.raises(
        UnknownMethodError, match=r"unknown method 'gpfed'; did you mean '\w+'\? Choose one of .*fedmf.*gpfedrec"
    ):
        method("gpfed")


@pytest.mark.parametrize("name", NAMES)
def test_misspelt_settings_are_refused(name):
    with pytest.raises(ValidationError, match="extra"):
        method(name).config(negativs=4)


@pytest.mark.parametrize("name", ["fedmf", "fedncf", "pfedrec", "gpfedrec"])
def test_item_block_and_pull_are_what_attacks_read(world, name):
    w, registered = world(name).train(1), method(name)
    blocks = registered.attack_surface.item_blocks(registered.config(), w.server.schema)
    assert w.server.schema[blocks.output].shape[0] == 70
    if name == "gpfedrec":
        users = torch.tensor([3, 9])
        message = w.server.public().addressed_to(torch.arange(2, 12))
        pull = registered.attack_surface.proximal_direction(message, users)
        public = w.server.public()
        assert pull.equal(public.personal["targets"][users + 2] - public.shared["items"])
    else:
        assert registered.attack_surface.proximal_direction is None


@pytest.mark.parametrize("name", ["fedmf", "fedncf", "pfedrec", "gpfedrec"])
@pytest.mark.parametrize("state", ["private", "received"])
def test_scores_of_candidates_are_those_columns_of_the_whole_catalogue(world, name, state):
    w = world(name, dim=4).train(1)
    users, checked = torch.tensor([2, 3, 11]), []
    candidates = torch.tensor([[0, 69, 5], [7, 7, 1], [30, 2, 44]])

    def look(clients, call, message, updates):
        whole = clients.score(call.clients, message, updates, None)
        columns = candidates[torch.arange(len(call.clients)) % 3]
        some = clients.score(call.clients, message, updates, columns)
        torch.testing.assert_close(some, whole.gather(1, columns), rtol=1e-5, atol=1e-5)
        checked.append(len(call.clients))

    if state == "private":
        w.simulation.observers.append(look)
        w.train(2, first=1)
        assert sum(checked) == 45
        return
    message = w.server.public().addressed_to(users)
    whole = w.clients.score(users, message, None, None)
    assert whole.shape == (3, 70)
    some = w.clients.score(users, message, None, candidates)
    torch.testing.assert_close(some, whole.gather(1, candidates), rtol=1e-5, atol=1e-5)
