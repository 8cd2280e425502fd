"""A federation whose every number can be worked out by hand."""

from types import SimpleNamespace

import pytest
import torch


@pytest.fixture
def toy():
    """Clients that upload `100 user + round` in a vector and `user` in one row; private state counts steps."""
    from privfed.contracts import Block
    from privfed.engines.simulation import Simulation
    from privfed.federation import Message, PrivateState, StatefulClients, Streams
    from privfed.privacy import Ledger, PrivacyPlan
    from privfed.updates import ClientUpdates, Dense, Rows

    schema = {"v": Block((3,)), "t": Block((50, 2))}

    class ToyClients(StatefulClients):
        steps = frozenset({"train"})

        def __init__(self, population):
            self.private = PrivateState({"steps": torch.zeros(population)})
            self.calls, self.messages, self.fail_at = [], [], None

        def train(self, call, message):
            self.calls.append(call)
            self.messages.append(message)
            if self.fail_at is not None and self.fail_at in call.clients:
                raise RuntimeError("the battery is empty")
            n = len(call.clients)
            self.private.stage(call.clients, {"steps": self.private.rows(call.clients)["steps"] + 1})
            users, everyone = call.clients.float(), torch.arange(n)
            vector = (100 * users + call.round).unsqueeze(1).repeat(1, 3)
            rows = Rows("t", everyone, call.clients % 50, users.unsqueeze(1).repeat(1, 2))
            return ClientUpdates(call.clients, call.schema, [Dense("v", everyone, vector), rows])

    class ToyServer:
        def __init__(self, individual=False, queries=1):
            self.schema, self.individual, self.queries = schema, individual, queries
            self.releases, self.cohorts = [], []
            self.x = torch.zeros(4)

        def public(self):
            return Message({"x": self.x})

        def round(self, federation, t):
            cohort = federation.sample_cohort(t)
            self.cohorts.append(cohort)
            ask = federation.collect if self.individual else federation.aggregate
            for _ in range(self.queries):
                release = ask("train", cohort, self.public(), self.schema)
                if self.individual:
                    uploads = {name: value.clone() for name, value in release.uploads.items()}
                    release = SimpleNamespace(pseudonyms=release.pseudonyms, uploads=uploads)
                self.releases.append(release)
            self.x = self.x + 1

    def build(plan="none", population=45, seed=0, individual=False, queries=1, **options):
        privacy, streams = PrivacyPlan.parse(plan), Streams.from_seed(seed)
        clients, ledger = ToyClients(population), Ledger(privacy, population)
        simulation = Simulation(clients, privacy, population, streams, ledger, **options)
        return SimpleNamespace(
            clients=clients, server=ToyServer(individual, queries), simulation=simulation, ledger=ledger,
            streams=streams, schema=schema,
        )  # fmt: skip

    return build
