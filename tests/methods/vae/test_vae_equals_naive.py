"""FedVAE and FedDAE equal the papers told naively: one client at a time, autograd, float64, dropout and KL on.

The oracle gives every client whole weights of its own, a gate over the whole catalogue and torch's optimisers. It
shares nothing with the trainers but initial values and the addresses of random numbers.
"""

import pytest
import torch

from privfed.federation import Call, Message, Purpose, Streams
from privfed.methods import ClientData, PublicInfo
from privfed.methods.feddae import METHOD as FEDDAE
from privfed.methods.fedvae import METHOD as FEDVAE
from privfed.updates import LowRank

STEPS, ROUND, ASK = 4, 7, 1
BASE = {"latent": 3, "local_steps": STEPS, "local_lr": 0.03, "anneal_rounds": 10}
DAE = BASE | {"hidden": (6, 5), "personal_lr": 0.02}

CASES = {
    "one layer": (FEDVAE, BASE),
    "three layers": (FEDVAE, BASE | {"hidden": (6, 5)}),
    "mean loss": (FEDVAE, BASE | {"hidden": (4,), "loss_scale": "mean"}),
    "no dropout, one step": (FEDVAE, BASE | {"dropout": 0.0, "local_steps": 1}),
    "embedding": (FEDDAE, DAE),
    "embedding, sgd": (FEDDAE, DAE | {"personal_optimiser": "sgd"}),
    "sparse first layer": (FEDDAE, DAE | {"local_encoder": "sparse_first_layer"}),
    "sparse first layer, sgd": (FEDDAE, DAE | {"local_encoder": "sparse_first_layer", "personal_optimiser": "sgd"}),
    "sparse first layer is all there is": (FEDDAE, DAE | {"local_encoder": "sparse_first_layer", "hidden": ()}),
    "full": (FEDDAE, DAE | {"local_encoder": "full"}),
    "full, sgd, mean": (
        FEDDAE, DAE | {"local_encoder": "full", "personal_optimiser": "sgd", "loss_scale": "mean"}
    ),
    "two shared encoders": (FEDDAE, DAE | {"upload_local_encoder": True}),
    "frozen random gate": (FEDDAE, DAE | {"frozen_random_gate": True}),
    "fixed gate": (FEDDAE, DAE | {"fixed_gate": 0.25}),
    "gradients accumulate": (FEDDAE, DAE | {"accumulate_gradients": True, "local_encoder": "full"}),
    "gradients accumulate, shared trunk": (
        FEDDAE, DAE | {"accumulate_gradients": True, "local_encoder": "sparse_first_layer", "personal_optimiser": "sgd"}
    ),
    "as released": (
        FEDDAE,
        DAE | {
            "accumulate_gradients": True, "upload_local_encoder": True, "frozen_random_gate": True,
            "forget_personal_state": True, "beta_zero_after_first_round": True,
        },
    ),
}  # fmt: skip


class Bench:
    """Clients of one method in float64, and one call to all of them."""

    def __init__(self, method, settings, split):
        self.config = method.config(**settings)
        self.data = ClientData.from_split(split, "train")
        self.streams = Streams.from_seed(5)
        self.server = method.training.server(
            self.config, PublicInfo(self.data.n_users, self.data.n_items), self.streams
        )
        self.clients = method.training.clients(self.config, self.data, self.streams)
        generator = torch.Generator().manual_seed(0)
        for state in (self.clients.private, getattr(self.clients, "ragged", None)):
            for name, value in state.current.items() if state else ():
                bump = 0.3 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
                state.current[name] = value.double() + bump
        self.message = Message({name: value.double() for name, value in self.server.public().shared.items()})

    def train(self, users):
        call = Call(ROUND, ROUND, "train", ASK, users, self.streams, self.server.schema)
        return self.clients.train(call, self.message)


class NaiveClient:
    """One client with whole tensors, autograd and torch's optimisers."""

    def __init__(self, bench, user):
        c, self.user, self.bench = bench.config, user, bench
        self.config, self.n_items = c, bench.data.n_items
        self.items = torch.tensor(sorted(set(bench.data.positives.items_of(user).tolist())))
        self.shared = {name: value.clone().requires_grad_() for name, value in bench.message.shared.items()}
        state = bench.clients.state()
        self.own, self.kind = {}, None
        if "gate" in state:
            self.kind = "second" if c.upload_local_encoder else c.local_encoder
            # A gate over the catalogue whose logits on this user's items are those that the client keeps.
            self.own["psi"] = torch.randn(self.n_items, 2, generator=torch.Generator().manual_seed(9)).double()
            self.own["gate"] = state["gate"][user] - self.own["psi"][self.items].sum(0)
            for name, value in state.items():
                if name == "first.rows":
                    mine = bench.clients.rows.entries(torch.tensor([user]))
                    self.own["first.weight"] = torch.full((self.n_items, value.shape[1]), 5.0, dtype=torch.float64)
                    self.own["first.weight"][self.items] = value[mine]
                elif name != "gate":
                    self.own[name] = value[user].clone()
            self.own = {name: value.clone().requires_grad_() for name, value in self.own.items()}

    def randomness(self):
        c, streams, m = self.config, self.bench.streams, len(self.items)
        steps = c.local_steps
        words = streams.words(Purpose.DROPOUT, ROUND, ASK, [self.user], steps * m)[0].reshape(steps, m)
        keep = torch.from_numpy(words.astype("float64") >= c.dropout * 2**32)
        noise = streams.normal(Purpose.LATENT, ROUND, ASK, [self.user], steps * c.latent)
        return keep, noise.view(steps, c.latent).double()

    def encode(self, x, layers):
        h = x
        for j, (weight, bias) in enumerate(layers):
            h = (h.tanh() if j else h) @ weight + bias
        return h.chunk(2)

    def layers(self, prefix, count, first=0):
        return [(self.shared[f"{prefix}.{j}.weight"], self.shared[f"{prefix}.{j}.bias"]) for j in range(first, count)]

    def encoders(self, x):
        depth = len(self.config.hidden) + 1
        found = [self.encode(x, self.layers("encoder", depth))]
        if self.kind == "embedding":
            found.append(self.own["vectors"].chunk(2))
        elif self.kind == "second":
            found.append(self.encode(x, self.layers("local_encoder", depth)))
        elif self.kind is not None:
            own = [(self.own["first.weight"], self.own["first.bias"])]
            if self.kind == "full":
                name = "own.encoder.{}.{}".format
                own += [(self.own[name(j, "weight")], self.own[name(j, "bias")]) for j in range(1, depth)]
            else:
                own += self.layers("encoder", depth, 1)
            found.append(self.encode(x, own))
        return found

    def decode(self, z):
        last = len(self.config.hidden)
        for j in range(last):
            z = (z @ self.shared[f"decoder.{j}.weight"] + self.shared[f"decoder.{j}.bias"]).tanh()
        return self.shared[f"decoder.{last}.weight"] @ z + self.shared[f"decoder.{last}.bias"]

    def posterior(self, x, r):
        encoders = self.encoders(x)
        if self.kind is None:
            ((mean, log_variance),) = encoders
            return mean, log_variance.exp()
        w = torch.softmax(r @ self.own["psi"] + self.own["gate"], 0)
        mean = sum(w[k] * m for k, (m, _) in enumerate(encoders))
        return mean, sum(w[k] ** 2 * v.exp() for k, (_, v) in enumerate(encoders))

    def loss(self, keep, noise):
        c, m = self.config, len(self.items)
        r = torch.zeros(self.n_items, dtype=torch.float64)
        r[self.items] = 1
        x = r / r.norm()
        x[self.items] = x[self.items] * keep / (1 - c.dropout)
        mean, variance = self.posterior(x, r)
        logits = self.decode(mean + variance.sqrt() * noise)
        reconstruction = -(r * torch.log_softmax(logits, 0)).sum()
        kl = 0.5 * (mean**2 + variance - variance.log() - 1).sum()
        loss = reconstruction + c.beta(ROUND) * kl
        return loss / m if c.loss_scale == "mean" else loss

    def train(self):
        c = self.config
        optimisers = [torch.optim.SGD(list(self.shared.values()), lr=c.local_lr)]
        if self.kind is not None:
            kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[c.personal_optimiser]
            tuned = [v for n, v in self.own.items() if c.learns_gate or n not in ("gate", "psi")]
            if tuned:
                optimisers.append(kind(tuned, lr=c.personal_lr))
        for keep, noise in zip(*self.randomness(), strict=True):
            if not getattr(c, "accumulate_gradients", False):
                for optimiser in optimisers:
                    optimiser.zero_grad()
            self.loss(keep, noise).backward()
            for optimiser in optimisers:
                optimiser.step()
        return {name: (value - self.bench.message.shared[name]).detach() for name, value in self.shared.items()}

    def scores(self):
        x = torch.zeros(self.n_items, dtype=torch.float64)
        x[self.items] = 1
        mean, _ = self.posterior(x / x.norm(), x)
        return self.decode(mean).detach()

    def check_personal(self, found, entries):
        """Compare with the client's own state, where it keeps some."""
        for name, value in found.items():
            if name == "gate":
                wanted = self.own["gate"] + self.own["psi"][self.items].sum(0)
            elif name == "first.rows":
                wanted = self.own["first.weight"][self.items]
            else:
                wanted = self.own[name]
            close(value[entries] if name == "first.rows" else value, wanted.detach())
        if "first.weight" in self.own:
            others = torch.ones(self.n_items, dtype=torch.bool)
            others[self.items] = False
            assert (self.own["first.weight"][others] == 5).all()


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_updates_norms_personal_state_and_scores_equal_those_of_a_naive_client(few_users, case):
    bench = Bench(*CASES[case], few_users)
    users = torch.tensor([3, 0, 17, 9, 10])
    received = bench.clients.score(users, bench.message, None, None)
    for j, user in enumerate(users.tolist()):
        close(received[j], NaiveClient(bench, user).scores())
    updates = bench.train(users)
    tuned = bench.clients.score(users, bench.message, updates, None)
    found = {
        p.block: torch.einsum("her,hec->hrc", p.left, p.right) if isinstance(p, LowRank) else p.values
        for p in updates.parts
    }
    norms = updates.norms(2)
    own = bench.clients._own(users, staged=True) if hasattr(bench.clients, "ragged") else {}
    owners = torch.repeat_interleave(torch.arange(5), bench.clients.rows.counts[users])
    for j, user in enumerate(users.tolist()):
        naive = NaiveClient(bench, user)
        wanted = naive.train()
        assert wanted.keys() == found.keys()
        for name, value in wanted.items():
            close(found[name][j], value)
        close(norms[j], torch.cat([value.flatten() for value in wanted.values()]).norm())
        close(tuned[j], naive.scores())
        mine = {name: value if name == "first.rows" else value[j] for name, value in own.items()}
        naive.check_personal(mine, owners == j)
    assert float(norms.min()) > 1e-3
