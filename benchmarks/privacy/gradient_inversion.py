"""Gradient inversion of uploads whose rows nobody looks at: histories for which the client's step gives the upload.

    python -m benchmarks.privacy.gradient_inversion --seeds 2

MovieLens-100K and people as in `benchmarks.privacy.ranges_and_links`, AUC of training items against items never seen.
The server knows the code, the model that it sent, and popularity. Three steps are written once more with automatic
differentiation: low-rank factors after several mini-batches on positives and drawn negatives (CoLR: the user vector and
the negatives are sought as well), products after an exact solve (DPALS), and a gradient of low rank (private
autoencoder). Uploads are read as they are, and as a count sketch with a public seed of one number in eight, in which no
row is visible. Beside it ridge regression from 600 simulated newcomers (`attacks.membership.learned_inversion`) and
popularity. The pull towards popularity is chosen on the people whose histories are known, and measured on the others.
Results go to `benchmarks/results/gradient_inversion.json`. One process, one thread.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor

from attacks.evaluation.choice import best_on
from attacks.membership.gradient_inversion import gradient_inversion
from attacks.membership.learned_inversion import learned_inversion
from attacks.metrics import user_mean
from attacks.views import PerUser, UserMask
from benchmarks import harness
from benchmarks.privacy.active_servers import CLIENTS, DATA, ROUNDS, People, assembled, audited_methods
from benchmarks.privacy.ranges_and_links import PAIRS, drawn, flat, simulated
from privfed.audit.active.honest_run import trained
from privfed.audit.active.lying_server import LyingServer
from privfed.data import SplitSpec, load, split
from privfed.methods.colr import CoLRConfig
from privfed.methods.dpals.config import DPALSConfig

SKETCHED = 8
PULLS, STEPS = (1e-3, 1e-2), 100


class Step(ABC):
    """A client's step as a differentiable function of what is sought.

    Args:
        model: tensors that the server sent.
        items: size of the catalogue.
    """

    def __init__(self, model: dict[str, Tensor], items: int) -> None:
        self.model, self.items = model, items

    @property
    def private(self) -> int:
        """Numbers that are private besides the history."""
        return 0

    @abstractmethod
    def uploads(self, history: Float[Tensor, "n items"], private: Float[Tensor, "n k"]) -> Float[Tensor, "n size"]:
        """Blocks one after the other, up to a factor for each client."""


class LowRankFactors(Step):
    """CoLR: mini-batches on all samples alike, whose order nobody knows.

    Args:
        model: as above.
        items: as above.
        config: settings.
        batches: that an average client takes.
        negatives: expected share of the catalogue that is drawn.
    """

    def __init__(
        self, model: dict[str, Tensor], items: int, config: CoLRConfig, batches: int, negatives: float
    ) -> None:
        super().__init__(model, items)
        self.config, self.batches = config, batches
        self.rare = float(np.log(negatives / (1 - negatives)))

    @property
    def private(self) -> int:
        """The user vector, and log-odds of having drawn an item."""
        return self.config.dim + self.items

    def uploads(self, history: Float[Tensor, "n items"], private: Float[Tensor, "n k"]) -> Float[Tensor, "n size"]:
        """Factors after all batches."""
        c, table, basis = self.config, self.model["items"], self.model["basis"]
        vector, drawn = private[:, : c.dim] * c.initial_scale, torch.sigmoid(private[:, c.dim :] + self.rare)
        total = (history + drawn).sum(1, keepdim=True) / self.batches
        factors = history.new_zeros(len(history), self.items, c.rank)
        for _ in range(self.batches):
            probability = torch.sigmoid(vector @ table.T)
            slope = (history * (probability - 1) + drawn * probability) / self.batches / total
            factors = factors - slope.unsqueeze(2) * (vector @ basis.T).unsqueeze(1)
            vector = vector - c.lr * c.user_lr_factor * slope @ table
        return factors.flatten(1)


class SolvedProducts(Step):
    """DPALS: an exact solve for the user vector, then products."""

    def __init__(self, model: dict[str, Tensor], items: int, config: DPALSConfig) -> None:
        super().__init__(model, items)
        self.config = config
        self.rows, self.columns = torch.triu_indices(model["items"].shape[1], model["items"].shape[1])

    @cached_property
    def outer(self) -> Float[Tensor, "head squares"]:
        """Outer product of every item's factors."""
        factors = self.model["items"]
        return (factors.unsqueeze(2) * factors.unsqueeze(1)).flatten(1)

    def uploads(self, history: Float[Tensor, "n items"], private: Float[Tensor, "n k"]) -> Float[Tensor, "n size"]:
        """Outer product of the unit vector, and the vector for every own item."""
        del private
        factors, c = self.model["items"], self.config
        own = history[:, self.model["head"]]
        dim, counts = factors.shape[1], own.sum(1)
        square = (own @ self.outer + c.unobserved * self.outer.sum(0)).view(-1, dim, dim)
        ridge = c.user_regularisation * (counts + c.unobserved * len(factors))
        square = square + ridge[:, None, None] * torch.eye(dim)
        vector = torch.linalg.solve(square, own @ factors)
        unit = vector / vector.norm(dim=1, keepdim=True)
        gram = unit[:, self.rows] * unit[:, self.columns] * torch.where(self.rows == self.columns, 1.0, 2**0.5)
        weight = own * self.model["balance"]
        weight = weight / weight.norm(dim=1, keepdim=True)
        return torch.cat([gram, (weight.unsqueeze(2) * unit.unsqueeze(1)).flatten(1)], 1)


class AutoencoderGradient(Step):
    """Private autoencoder: minus one gradient of both layers."""

    def uploads(self, history: Float[Tensor, "n items"], private: Float[Tensor, "n k"]) -> Float[Tensor, "n size"]:
        """Gradients of encoder and decoder."""
        del private
        m, own = self.model, history[:, self.model["head"]]
        unit = own / own.norm(dim=1, keepdim=True)
        hidden = torch.tanh(unit @ m["encoder"])
        slope = own.sum(1, keepdim=True) * torch.softmax(m["bias"] + hidden @ m["decoder"].T, 1) - own
        back = (slope @ m["decoder"]) * (1 - hidden**2)
        into, out = unit.unsqueeze(2) * back.unsqueeze(1), slope.unsqueeze(2) * hidden.unsqueeze(1)
        return -torch.cat([into.flatten(1), out.flatten(1)], 1)


@dataclass(frozen=True, eq=False)
class Sketch:
    """A count sketch with a public seed; of width 0, everything as it is.

    Attributes:
        size: numbers of an upload.
        width: numbers that are sent.
    """

    size: int
    width: int

    @cached_property
    def place(self) -> tuple[Int64[Tensor, " size"], Float[Tensor, " size"]]:
        """Where each number is added, and with what sign."""
        generator = torch.Generator().manual_seed(26)
        at = torch.randint(self.width, (self.size,), generator=generator)
        return at, torch.randint(2, (self.size,), generator=generator) * 2.0 - 1

    def of(self, uploads: Float[Tensor, "n size"]) -> Float[Tensor, "n width"]:
        """The sketch of every upload."""
        if not self.width:
            return uploads
        at, sign = self.place
        return uploads.new_zeros(len(uploads), self.width).index_add(1, at, uploads * sign)


class Matched:
    """`attacks.membership.gradient_inversion.SimulatedStep` by torch's automatic differentiation.

    Args:
        step: of a client.
        sketch: of its uploads.
        seen: uploads, sketched.
    """

    def __init__(self, step: Step, sketch: Sketch, seen: Float[Tensor, "people width"]) -> None:
        self.step, self.sketch, self.seen = step, sketch, seen
        self.people, self.private = len(seen), step.private

    def mismatch(
        self,
        history: Float64[np.ndarray, "starts people items"],
        private: Float64[np.ndarray, "starts people k"],
    ) -> tuple[Float64[np.ndarray, "starts people"], Any, Any]:
        """One minus the cosine with what was seen, and its gradients."""
        sought = [torch.from_numpy(values).float().requires_grad_() for values in (history, private)]
        sent = self.sketch.of(self.step.uploads(*(values.flatten(0, 1) for values in sought)))
        alike = torch.cosine_similarity(sent.view(len(history), *self.seen.shape), self.seen.unsqueeze(0), dim=2)
        far = 1 - alike
        far.sum().backward()  # type: ignore[no-untyped-call]
        # A step without private numbers has an empty gradient, or none.
        gradients = [np.zeros(v.shape) if v.grad is None else v.grad.double().numpy() for v in sought]
        return far.detach().double().numpy(), gradients[0], gradients[1]


@dataclass(frozen=True, eq=False)
class Case:
    """Uploads of the audited people by one method, and how to simulate more.

    Attributes:
        people: audited.
        step: of a client, differentiable.
        seen: uploads, flat.
        pairs: uploads of newcomers.
        made_up: their histories.
    """

    people: People
    step: Step
    seen: Float32[np.ndarray, "people size"]
    pairs: Float32[np.ndarray, "newcomers size"]
    made_up: Bool[np.ndarray, "newcomers items"]

    @classmethod
    def of(cls, name: str, people: People, seed: int) -> "Case":
        """After honest training, as in `ranges_and_links`."""
        method = audited_methods()[name]
        honest = assembled(name, "none", people, seed, CLIENTS)
        run = trained(honest, 0 if method.traits.uploads_once else ROUNDS)
        query = [one for one in run.queries if one.message.shared][-1]
        assembly = assembled(name, "none", people, seed)
        assembly.clients.load(run.devices)
        sizes = np.random.default_rng(4).choice(people.split.train.counts[people.users[people.known]], PAIRS)
        made_up = drawn(people.knowledge.popularity, sizes)
        pairs = flat(simulated(assembly, query, query.message, made_up).materialise(torch.arange(PAIRS)))
        seen = flat(LyingServer(assembly, query).uploads(query.message, torch.from_numpy(people.users)))
        model, items = dict(query.message.shared), people.split.train.n_items
        return cls(people, step_of(name, model, items, assembly.config.settings(), sizes.mean()), seen, pairs, made_up)

    def inverted(self, sketch: Sketch, here: UserMask, pull: float) -> PerUser:
        """AUC of the people who are here by gradient inversion."""
        people, scores = self.people, np.zeros((len(here), self.step.items))
        prior = np.clip(people.knowledge.popularity / len(people.split.train.counts), 1e-3, 0.999)
        matched = Matched(self.step, sketch, sketch.of(torch.from_numpy(self.seen[here])))
        scores[here] = gradient_inversion(matched, prior, proximal=pull, steps=STEPS)
        return people.auc(scores, here)

    def chosen(self, sketch: Sketch) -> tuple[PerUser, str]:
        """AUC of unknown people by the pull that was best for known ones."""
        known = self.people.known
        pull, reverse = best_on({pull: self.inverted(sketch, known, pull) for pull in PULLS}, known)
        auc = self.inverted(sketch, ~known, pull)
        return (1 - auc if reverse else auc), f"pull {pull:g}{', in reverse' if reverse else ''}"

    def ridge(self, sketch: Sketch) -> PerUser:
        """AUC of unknown people by learned inversion."""
        seen, pairs = (sketch.of(torch.from_numpy(rows)).numpy() for rows in (self.seen, self.pairs))
        return self.people.auc(learned_inversion(seen, pairs, self.made_up), ~self.people.known)


def step_of(name: str, model: dict[str, Tensor], items: int, config: Any, size: float) -> Step:
    """The step of a method's clients, whose histories have this size on average."""
    model = {key: values.float() if values.is_floating_point() else values for key, values in model.items()}
    if name == "colr":
        samples = size * (1 + config.negatives)
        batches = max(1, round(samples / config.batch_size)) * config.epochs
        return LowRankFactors(model, items, config, batches, min(size * config.negatives / items, 0.9))
    return SolvedProducts(model, items, config) if name == "dpals" else AutoencoderGradient(model, items)


METHODS = ("colr", "dpals", "private-autoencoder")


def measured(name: str, people: People, seeds: int) -> dict[str, Any]:
    """Both attacks on uploads as they are and sketched."""
    started = time.process_time()
    aucs: dict[str, list[PerUser]] = {}
    chosen: dict[str, list[str]] = {}
    for seed in range(seeds):
        case = Case.of(name, people, seed)
        size = case.seen.shape[1]
        for form, width in (("as sent", 0), ("sketched", size // SKETCHED)):
            sketch = Sketch(size, width)
            inverted, settings = case.chosen(sketch)
            aucs.setdefault(f"{form}, ridge", []).append(case.ridge(sketch))
            aucs.setdefault(f"{form}, gradient", []).append(inverted)
            chosen.setdefault(form, []).append(settings)
    row: dict[str, Any] = {"people": int((~people.known).sum()), "seeds": seeds, "numbers": size}
    row["popularity"] = round(float(np.nanmean(people.popularity(~people.known))), 4)
    row["auc"] = {place: _interval(np.mean(of_seeds, axis=0)) for place, of_seeds in aucs.items()}
    return row | {"chosen": chosen, "cpu_s": round(time.process_time() - started, 1)}


def _interval(values: PerUser) -> list[float]:
    found = user_mean(values)
    return [round(float(v), 4) for v in (found.value, found.lo, found.hi)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every method."""
    parser = harness.parser(__file__, __doc__, seeds=2, only=[])
    options = harness.parse(parser, arguments)
    people = People.drawn(split(load(DATA), SplitSpec()))
    record = harness.Record("gradient_inversion", options, {})
    for name in METHODS:
        if harness.chosen(name, options.only):
            record.put(measured(name, people, options.seeds), name)


if __name__ == "__main__":
    main()
