"""Every registered method passes `check_method`, and every check finds the method that is broken for it."""

from dataclasses import replace

import pytest
import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from privfed.contracts import Block, MethodTraits
from privfed.federation import Message, StatefulClients, alike
from privfed.methods import Method, MethodConfig, NamedBlocks, NoItemRows, ServerReads, Training, method, methods
from privfed.testing import CHECKS, MethodCheckError, check_method
from privfed.updates import ClientUpdates, Dense


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", sorted(methods()))
def test_every_registered_method(name, check):
    check_method(method(name), only=check)


class Settings(MethodConfig):
    lr: float = Field(0.5, gt=0)


class Server:
    """One bias per item."""

    def __init__(self, config, public_info, streams):
        self.bias = torch.zeros(public_info.n_items, 1)
        self.schema = {"bias": Block((public_info.n_items, 1))}

    def round(self, federation, t):
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        self.bias = self.bias + release.mean("bias")

    def public(self):
        return Message({"bias": self.bias})

    def state(self):
        return {"bias": self.bias}

    def load(self, state):
        self.bias = state["bias"]


class Clients(StatefulClients):
    """One offset per user."""

    steps = frozenset({"train"})

    def __init__(self, config, data, streams):
        self.config, self.positives = config, data.positives
        self.private = data.private_state(alike({"offset": torch.zeros(1)}))

    def error(self, call, message):
        taken = torch.from_numpy(self.positives.mask(call.clients.numpy())).float()
        return self.config.lr * (taken - self.score(call.clients, message, None, None).sigmoid())

    def train(self, call, message):
        error = self.error(call, message)
        self.keep(call, self.private.rows(call.clients)["offset"] + error.sum(1, keepdim=True))
        return ClientUpdates(call.clients, call.schema, [Dense("bias", torch.arange(len(error)), error.unsqueeze(2))])

    def keep(self, call, offset):
        self.private.stage(call.clients, {"offset": offset})

    def score(self, clients, message, updates, candidates):
        own = self.private.rows(clients) if updates is None else self.private.staged(clients)
        scores = message.shared["bias"][:, 0] + own["offset"]
        scores = scores if updates is None else scores + updates.stacked("bias")[:, :, 0]
        return scores if candidates is None else scores.gather(1, candidates)


def build(server=Server, clients=Clients, config=Settings, attack_surface=None, training=(), traits=(), **texts):
    kind = type("ToyTraining", (Training,), {"server": server, "clients": clients, **dict(training)})
    described = {"title": "biases", "display_name": "Biases", "source": "this test", **texts}
    return Method(
        name="toy", config=config, training=kind(),
        traits=replace(MethodTraits(release="total", upload="dense"), **dict(traits)),
        attack_surface=attack_surface or NamedBlocks("bias"), disclosure=ServerReads("the sum of biases"), **described,
    )  # fmt: skip


def test_the_toy_is_sound():
    check_method(build())
    check_method(build(), lr=0.1)
    with pytest.raises(KeyError):
        check_method(build(), only="no such check")


class Thawed(MethodConfig):
    model_config = ConfigDict(frozen=False)


class NeedsSomething(MethodConfig):
    width: int


class TakesNaN(MethodConfig):
    model_config = ConfigDict(allow_inf_nan=True)
    lr: float = 0.5


class NoBlocks(Server):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.schema = {}


class Growing(Server):
    built = 0

    def __init__(self, config, public_info, streams):
        super().__init__(config, public_info, streams)
        Growing.built += 1
        self.schema = {"bias": Block((public_info.n_items, 1), weight=float(Growing.built))}


class NoSteps(Clients):
    steps = frozenset()


class Missing(Clients):
    steps = frozenset({"train", "evaluate"})


class Misnamed(Clients):
    steps = frozenset({"error"})


class NoisyElsewhere(Clients):
    noisy = frozenset({"evaluate"})


class Eager(Clients):
    """Declares every step there is."""

    steps = type("Everything", (frozenset,), {"__contains__": lambda self, name: True})({"train"})

    def __getattr__(self, name):
        if name == "no such step":
            return lambda call, message: ClientUpdates(call.clients, call.schema, [])
        raise AttributeError(name)


class Undeclared(Server):
    def round(self, federation, t):
        federation.aggregate("evaluate", federation.sample_cohort(t), self.public(), self.schema)


class Twice(Server):
    def round(self, federation, t):
        cohort = federation.sample_cohort(t)
        for _ in range(2):
            self.bias = self.bias + federation.aggregate("train", cohort, self.public(), self.schema).mean("bias")


class Collects(Server):
    def round(self, federation, t):
        release = federation.collect("train", federation.sample_cohort(t), self.public(), self.schema)
        self.bias = self.bias + release.mean("bias")


class Counts(Server):
    def __init__(self, config, public_info, streams):
        super().__init__(config, public_info, streams)
        self.schema = {"bias": Block((public_info.n_items, 1), kind="integer", bound=1)}


class CountsTooFar(Clients):
    def train(self, call, message):
        values = torch.full((len(call.clients), *call.schema["bias"].shape), 3)
        return ClientUpdates(call.clients, call.schema, [Dense("bias", torch.arange(len(call.clients)), values)])


class OtherOrder(Clients):
    def train(self, call, message):
        updates = super().train(call, message)
        updates.clients = updates.clients.flip(0)
        return updates


class Broken(Clients):
    def error(self, call, message):
        return super().error(call, message) / 0


class Tosses(Clients):
    def error(self, call, message):
        return super().error(call, message) + torch.rand(1) * 1e-6


class LooksAround(Clients):
    def error(self, call, message):
        error = super().error(call, message)
        return error - error.mean(0)


class CarriesOver(Clients):
    """A call leaves something to the next one."""

    calls = 0

    def keep(self, call, offset):
        self.calls += 1
        super().keep(call, offset + self.calls)


class Forgets(Server):
    def state(self):
        return {}

    def load(self, state):
        del state


class Recomputes(Server):
    """Publishes something that its state does not have."""

    tilt: Tensor = torch.zeros(1)

    def round(self, federation, t):
        super().round(federation, t)
        self.tilt = self.tilt + 1

    def public(self):
        return Message({"bias": self.bias, "tilt": self.tilt})


class CountsRounds(Server):
    rounds = 0

    def round(self, federation, t):
        super().round(federation, t)
        self.rounds += 1
        self.bias = self.bias * (1 + self.rounds)


class KeepsAtOnce(Clients):
    def keep(self, call, offset):
        self.private.current["offset"][call.clients] = offset


class NeverForgets(Clients):
    def discard(self):
        self.commit()


class OneColumn(Clients):
    def score(self, clients, message, updates, candidates):
        scores = super().score(clients, message, updates, candidates)
        return scores if candidates is not None else scores[:, :-1]

    def error(self, call, message):
        return self.config.lr * torch.ones(len(call.clients), len(message.shared["bias"]))


class Reversed(Clients):
    def score(self, clients, message, updates, candidates):
        scores = super().score(clients, message, updates, candidates)
        return scores if candidates is None else scores.flip(1)


class ScoresNothing(Clients):
    def score(self, clients, message, updates, candidates):
        return super().score(clients, message, updates, candidates) / 0

    def error(self, call, message):
        return self.config.lr * torch.ones(len(call.clients), len(message.shared["bias"]))


class Hides(Clients):
    def error(self, call, message):
        return super().error(call, message).nan_to_num()


class NeedsSomebody(Clients):
    """Looks a tensor up by the number of clients."""

    def train(self, call, message):
        _ = message.shared["bias" if len(call.clients) else "nobody's bias"]
        return super().train(call, message)


BROKEN = [
    ("settings", {"config": NeedsSomething}, "give every setting a valid default"),
    ("settings", {"config": Thawed}, "extend privfed.methods.MethodConfig"),
    ("settings", {"config": TakesNaN}, "setting 'lr' accepts NaN"),
    ("names", {"title": ""}, "title is empty"),
    ("schema", {"server": NoBlocks}, "declares no block"),
    ("schema", {"server": Growing}, "declare different schemas"),
    ("schema", {"traits": {"integers": True}}, "a block is of real numbers"),
    ("steps", {"clients": NoSteps}, "declare no steps"),
    ("steps", {"clients": Missing}, "'evaluate' and have no such method"),
    ("steps", {"clients": Misnamed}, r"training.step is 'train' .* name one of \['error'\]"),
    ("steps", {"clients": NoisyElsewhere}, "`noisy` names 'evaluate'"),
    ("steps", {"traits": {"interaction_level": True}}, "does not train as Call.noisy_steps says"),
    ("steps", {"clients": Eager}, "answer a step that they do not declare"),
    ("updates", {"server": Undeclared}, "a round fails: .*'evaluate', which Clients lacks"),
    ("updates", {"server": Twice}, "made 2 queries where .* announce 1"),
    ("updates", {"server": Collects}, "collects single uploads of step 'train'"),
    ("updates", {"traits": {"uploads_once": True}}, "queries clients after the first round"),
    ("updates", {"server": Counts, "clients": CountsTooFar}, "holds 3, above its bound 1"),
    ("updates", {"clients": OtherOrder}, "a round fails: .* in another order"),
    ("updates", {"clients": Broken}, "a round fails: .* NaN or infinity"),
    ("attack surface", {"attack_surface": NamedBlocks("items")}, "names the block 'items'"),
    ("attack surface", {"attack_surface": type("Half", (NoItemRows,), {"has_item_rows": True})()}, "disagree"),
    ("determinism", {"clients": Tosses}, "take every random number from the streams"),
    ("chunks", {"clients": LooksAround}, "in chunks of 1 clients step 'train' sends other bits in 'bias'"),
    ("chunks", {"clients": LooksAround, "training": {"bit_parity": False}}, "sends other numbers in 'bias'"),
    ("chunks", {"clients": CarriesOver}, "leaves other bits in client state 'offset'"),
    ("state", {"server": Recomputes}, "publishes another 'tilt'"),
    ("resume", {"server": CountsRounds}, "stops after round 2"),
    ("transaction", {"clients": KeepsAtOnce}, "changes client state 'offset' before it is committed"),
    ("transaction", {"clients": NeverForgets}, "although it was discarded"),
    ("scores", {"clients": OneColumn}, r"has the shape \(5, 39\)"),
    ("scores", {"clients": Reversed}, "differs from those columns"),
    ("scores", {"clients": ScoresNothing}, "are not finite"),
    ("non-finite values", {"clients": Hides}, "turns NaN in 'bias' into finite uploads"),
    ("call of nobody", {"clients": NeedsSomebody}, "a call of step 'train' for no clients raises KeyError"),
]


@pytest.mark.parametrize(("check", "broken", "problem"), BROKEN)
@pytest.mark.usefixtures("unchecked")
def test_each_check_finds_what_is_broken_and_says_what_to_do(check, broken, problem):
    with pytest.raises(MethodCheckError, match=problem) as caught:
        check_method(build(**broken), only=check)
    assert "'toy'" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_lost_server_state_is_found_whichever_check_comes_first():
    for check in ("state", "resume"):
        with pytest.raises(MethodCheckError, match=r"server|state"):
            check_method(build(server=Forgets), only=check)


def test_every_check_has_a_method_that_fails_it():
    assert {check for check, *_ in BROKEN} == set(CHECKS)
