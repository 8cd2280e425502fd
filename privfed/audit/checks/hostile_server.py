"""A server that sends what no honest one would: whether the claim holds for devices that train on it.

What an audit replays otherwise is honest. Here some users of the run, the busiest and the quietest among them, train on
models of the right shape that are made to break things: zeros, huge, tiny and infinite numbers, single rows that stand
out, NaN for one item. As at a node, whoever's training fails sends zeros. Whatever is sent,

* no upload behind the clip is longer than the clip lets through, by arithmetic of the audit's own, or not finite;
* what the engine releases, less the clipped uploads, is the claimed noise, in every block, never the same twice;
* no answer is refused, since which users' data make it fail would be told by that;
* where noise is added inside training, uploads under two secret keys differ in every number, by as much as they do on
  the honest model, as far as floats of the size that was sent can tell; which rows are zeros tells nobody's items; and
  training fails for everybody or nobody: a silent user would have no noise.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from privfed.audit.active.honest_run import HonestQuery, trained
from privfed.audit.active.stateless import StatelessServer
from privfed.audit.active.tampered_clients import Step, TamperedClients
from privfed.audit.checks.added_noise import amounts, of_sums, repeats
from privfed.audit.checks.neighbours import only
from privfed.audit.checks.transcript_ledger import min_members
from privfed.audit.report.records import Check
from privfed.contracts import Block, Schema, refreshes_of, share_of
from privfed.engines import device_training
from privfed.engines.simulation import Simulation
from privfed.engines.witness import Witness, flat_rows
from privfed.experiment import Experiment, RunResult
from privfed.federation import Call, Federation, FederationError, Message, Streams
from privfed.guards import ClientGuard
from privfed.guards.tier_weights import weights_of
from privfed.privacy import Ledger, PrivacyError
from privfed.privacy.sampling import All
from privfed.setup.assembly import Assembly
from privfed.updates import ClientUpdates, Dense

_USERS = 16
_MARGIN = 1e-3
_FINE, _MOSTLY, _FAR = 1e-2, 0.5, 7.0
_EQUAL, _LEAST = 0.01, 0.5
"""Share of numbers that may be equal under two keys, and of the honest difference that noise must make."""
_OTHER_KEYS = Streams.of_party(hashlib.sha256(b"another party").digest(), hashlib.sha256(b"public").digest())


def check_hostile_server(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Hostile models, where a finite epsilon is claimed and devices are sent any."""
    plan = experiment.config.privacy
    if plan.mechanism.unbounded_reason is not None or not math.isfinite(result.guarantee.epsilon):
        return
    found = _Hostile.of(experiment)
    if found is None:
        return
    faults = [*found.faults()]
    yield Check(
        name="hostile server",
        passed=not faults,
        detail=faults[0] + (f" (and {len(faults) - 1} further findings)" if len(faults) > 1 else "")
        if faults
        else f"{found.assembly.n_users} users trained on {len(found.messages)} models that no honest server sends "
        f"({', '.join(found.messages)}): what left them was clipped and noised as claimed, and no answer was refused; "
        f"other models are not denied",
    )


@dataclass(slots=True, eq=False)
class _Hostile:
    """Some users, and what they are sent.

    Attributes:
        assembly: of these users alone, everybody taking part.
        query: that an honest server would make.
        messages: by what they are.
    """

    assembly: Assembly
    query: HonestQuery
    messages: Mapping[str, Message]

    @classmethod
    def of(cls, experiment: Experiment, keys: Streams | None = None) -> "_Hostile | None":
        """Of a run; None where nothing real is sent to devices, or too few can take part."""
        config, parts = experiment.config, experiment.trained
        plan = config.privacy.model_copy(update={"sampling": All()})
        count = max(min_members(plan), _USERS)
        if count > parts.train.n_users:
            return None
        order = parts.train.counts.argsort(kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, count).round().astype(int)]
        taps = config.taps.model_copy(update={"inclusion": 0.0, "shadows": 0, "places": ()})
        few = only(parts, np.sort(chosen))
        run = config.model_copy(update={"privacy": plan, "taps": taps, "chunk": None})
        assembly = Assembly(run, few, keys or experiment.streams)
        asked = [
            query
            for query in trained(assembly, 0).queries
            if _numbers(query.message) and refreshes_of(query.schema) == 1
        ]
        if not asked:
            return None
        held = np.bincount(few.train.items, minlength=few.train.n_items)
        item = int(np.abs(held - count / 2).argmin())
        return cls(assembly, asked[-1], dict(_models(asked[-1].message, few.train.n_items, item)))

    def faults(self) -> Iterator[str]:
        """What is wrong, in words."""
        plan = self.assembly.config.privacy
        witness, devices = Witness(plan, range(1, len(self.messages) + 1)), _Devices(self.assembly)
        engine = Simulation(
            witness.clients(devices),
            plan,
            self.assembly.n_users,
            self.assembly.streams,
            Ledger(plan, self.assembly.n_users),
            chunk=self.assembly.n_users,
            fidelity=self.assembly.config.fidelity,
            support=self.assembly.support,
        )
        server = witness.server(_Asker(self.query, self.messages, single=plan.mechanism.release == "individual"))
        for t, name in enumerate(self.messages, start=1):
            try:
                engine.run(server, t)
            except PrivacyError as error:
                yield f"on {name}, an answer is refused, which tells whose data it fails for: {error}"
                continue
            yield from (f"on {name}, {fault}" for fault in devices.faults)
            devices.faults.clear()
            if not all(values.isfinite().all() for values in witness.exchanges[-1].released.values()):
                yield f"on {name}, what is released is not finite, so no noise hides it"
                return
        if plan.mechanism.unit == "interaction":
            yield from self._inside_training(devices)
            return
        noises = [*of_sums(plan, witness.exchanges, self.assembly.n_users)]
        if noises:
            names = list(self.messages)
            for fault in (*amounts(noises), *repeats(noises)):
                yield f"models in the order {', '.join(names)} from round 2 on: {fault}"

    def _inside_training(self, devices: "_Devices") -> Iterator[str]:
        """Uploads under two keys, where these are all that differs."""
        other = _Devices(Assembly(self.assembly.config, self.assembly.parts, _OTHER_KEYS))
        step, message = self.query.step, self.query.message
        held = torch.from_numpy(self.assembly.trained.train.mask(np.arange(self.assembly.n_users)))
        honest = 0.0
        for t, (name, sent) in enumerate(self.messages.items(), start=1):
            call = Call(
                t, 0, step, 0, torch.arange(self.assembly.n_users), _OTHER_KEYS, self.query.schema,
                noisy_steps=self.assembly.config.privacy.mechanism.noisy_steps,
            )  # fmt: skip
            other.receive(step, sent)
            other.answer(getattr(other.clients, step), call, sent.addressed_to(call.clients))
            other.discard()
            one, two = devices.sent[t], other.sent[t]
            failed = devices.failed[t]
            if failed.any() and not failed.all():
                some = f"{int(failed.sum())} of {len(failed)} users"
                yield f"on {name}, training fails for {some}, whose silence no noise hides"
            heard = ~(failed | other.failed[t])
            if not heard.any():
                continue
            if any(_tells(values[heard], held[heard]) for values in one.values() if values.shape[:2] == held.shape):
                yield f"on {name}, which rows of an upload are zeros tells the items of its user"
            gaps = torch.cat([flat_rows((one[block] - two[block])[heard]) for block in one], 1).abs()
            equal, typical = float((gaps == 0).float().mean()), float(gaps.median())
            if sent is message:
                honest = typical
            elif _largest(sent) * 2.0**-23 > _FINE * honest:
                continue  # what was noised is rounded to what was sent, and is as private as before
            elif equal > _EQUAL:
                yield f"on {name}, {100 * equal:.1f} % of the numbers of an upload carry no noise"
            elif typical < _LEAST * honest:
                yield f"on {name}, uploads carry {typical / honest:.3f} times the noise that they do on an honest model"


def _tells(values: Tensor, held: Bool[Tensor, "users items"]) -> bool:
    """Whether rows of items that users have are zero more or less often than those of others, item by item."""
    empty = (values.flatten(2) == 0 if values.dim() > 2 else (values == 0).unsqueeze(2)).double().mean(2) > _MOSTLY
    users, own = len(held), held.double()
    rate = empty.double().mean(0)
    expected = (own * rate).sum()
    share = own.mean(0)
    variance = (users * share * (1 - share) * rate * (1 - rate)).sum()
    return bool(((own * empty).sum() - expected).abs() > _FAR * variance.sqrt().clamp(min=1.0))


def _largest(message: Message) -> float:
    """The largest magnitude of its real numbers."""
    return max(
        float(values.abs().max())
        for part in (message.shared, message.personal)
        for values in part.values()
        if values.is_floating_point() and values.numel()
    )


@dataclass(slots=True, eq=False)
class _Asker(StatelessServer):
    """A server that sends one model a round."""

    query: HonestQuery
    messages: Mapping[str, Message]
    single: bool
    schema: Schema = field(init=False)

    def __post_init__(self) -> None:
        self.schema = self.query.schema

    def round(self, federation: Federation, t: int) -> None:
        """One query."""
        cohort = federation.sample_cohort(t)
        ask = federation.collect if self.single else federation.aggregate
        ask(self.query.step, cohort, [*self.messages.values()][t - 1], self.schema)


class _Devices(TamperedClients):
    """Devices as a node has them: whoever's training fails sends zeros. What they are sent teaches them nothing.

    Attributes:
        faults: of clips, since they were last cleared.
        failed, sent: by round, for whom training failed, and what everybody sent before any clip.
    """

    def __init__(self, assembly: Assembly) -> None:
        super().__init__(assembly.clients)
        self._plan, self._streams = assembly.config.privacy, assembly.streams
        self.faults: list[str] = []
        self.failed: dict[int, Bool[Tensor, " users"]] = {}
        self.sent: dict[int, dict[str, Tensor]] = {}

    def answer(self, step: Step, call: Call, message: Message) -> ClientUpdates:
        """Updates, and zeros of those who fail."""
        del step  # training on a device finds it by its name
        failed = torch.zeros(len(call.clients), dtype=torch.bool)
        try:
            updates = device_training.trained(self.clients, call, message)
        except FederationError:
            updates = None
        if updates is None:
            updates = self._one_by_one(call, message, failed)
        everybody = torch.arange(len(call.clients))
        if self._plan.mechanism.unit == "interaction":
            self.sent[call.round], self.failed[call.round] = updates.materialise(everybody), failed
        elif self._plan.mechanism.clip is not None:
            self._check_clip(copy.deepcopy(updates), call)
        return updates

    def commit(self) -> None:
        """A model that no honest server sends leaves nothing behind."""
        self.clients.discard()

    def _one_by_one(self, call: Call, message: Message, failed: Bool[Tensor, " users"]) -> ClientUpdates:
        """What those send who do not fail; numbers of the others are zero."""
        rows: dict[str, list[Tensor]] = {name: [] for name in call.schema}
        refused = 0
        for at in range(len(failed)):
            own = Message(message.shared, {n: v[at : at + 1] for n, v in message.personal.items()}, message.config)
            try:
                alone = device_training.trained(self.clients, replace(call, clients=call.clients[at : at + 1]), own)
            except FederationError:
                alone, refused = None, refused + 1
            failed[at] = alone is None
            for name, values in ({} if alone is None else alone.materialise(torch.arange(1))).items():
                rows[name].append(values)
        if 0 < refused < len(failed):
            self.faults.append(f"{refused} of {len(failed)} devices refuse to answer, which tells what is on them")
        heard = (~failed).nonzero().squeeze(1)
        parts = [Dense(name, heard, torch.cat(values)) for name, values in rows.items() if values]
        return ClientUpdates(call.clients, call.schema, parts)

    def _check_clip(self, updates: ClientUpdates, call: Call) -> None:
        """Norms behind the guard's clip, by arithmetic of the audit's own."""
        plan, users = self._plan, torch.arange(len(updates))
        clip = plan.mechanism.clip
        if clip is None:
            return
        guard = ClientGuard(plan, self._streams)
        guard.clip_(updates, call.clip_norm)
        left = updates.materialise(users) if guard.rewrites else guard.protect(updates, call, users)
        real = {name: block for name, block in call.schema.items() if block.kind == "real"}
        powers = torch.stack([_power(left[name], block, clip.order) for name, block in real.items()], 1)
        if clip.per_block is None:
            norms = powers.sum(1, keepdim=True) ** (1 / clip.order)
            bounds = torch.tensor([call.clip_norm or clip.norm], dtype=torch.float64)
        else:
            norms, bounds = powers.sqrt(), torch.tensor(clip.bounds(list(real)), dtype=torch.float64)
        most = bounds * math.sqrt(share_of(call.schema))
        if plan.tiers is not None:
            most = most * weights_of(plan.tiers, self._streams, call.clients).double().unsqueeze(1)
        over = ~(norms <= most * (1 + _MARGIN))
        if over.any():
            ratio = float((norms / most)[over].max())
            self.faults.append(
                f"{int(over.any(1).sum())} of {len(users)} uploads are {ratio:.4g} times as long as the clip allows"
            )


def _power(values: Tensor, block: Block, order: int) -> Float64[Tensor, " n"]:
    return (flat_rows(values).double() * block.weight).abs().pow(order).sum(1)


def _numbers(message: Message) -> bool:
    return any(values.is_floating_point() for part in (message.shared, message.personal) for values in part.values())


def _models(message: Message, n_items: int, item: int) -> Iterator[tuple[str, Message]]:
    """An honest model, and those made of it.

    Args:
        message: that an honest server sends.
        n_items: of the catalogue.
        item: that some users have and others do not.
    """
    yield "the honest model", message
    for name, change in _CHANGES.items():
        yield name, _changed(message, change)
    for name, value in (("one item of huge numbers", 1e18), ("NaN for one item", math.nan)):
        shared, personal = ({n: v.clone() for n, v in part.items()} for part in (message.shared, message.personal))
        rows = [v[item] for v in shared.values() if v.is_floating_point() and v.shape[:1] == (n_items,)]
        rows += [v[:, item] for v in personal.values() if v.is_floating_point() and v.shape[1:2] == (n_items,)]
        for row in rows:
            row.fill_(value)
        if rows:
            yield name, Message(shared, personal, message.config)


def _one_hot(values: Tensor) -> Tensor:
    made = torch.zeros_like(values)
    made[..., :1] = 1e3
    return made


_CHANGES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "zeros": torch.zeros_like,
    "tiny numbers": lambda v: torch.full_like(v, 1e-40),
    "one-hot rows": _one_hot,
    "a million times the model": lambda v: v * 1e6,
    "billions": lambda v: torch.where(v < 0, -1e9, 1e9).to(v.dtype),
    "huge numbers": lambda v: torch.where(v < 0, -1e30, 1e30).to(v.dtype),
    "infinity": lambda v: torch.full_like(v, math.inf),
    "NaN": lambda v: torch.full_like(v, math.nan),
}


def _changed(message: Message, change: Callable[[Tensor], Tensor]) -> Message:
    shared, personal = (
        {name: change(values) if values.is_floating_point() else values for name, values in part.items()}
        for part in (message.shared, message.personal)
    )
    return Message(shared, personal, message.config)
