"""The conformance suite of a method: each check is one function, each failure one sentence that says what to do.

Everything is run on a small made-up population (`privfed.testing.population`) through the method's own classes, without
a privacy plan: what passes here can be put behind any plan that its traits allow.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from privfed.contracts import NoisySums, UpdateError, schema_digest
from privfed.federation import Call, Clients, FederationError, Message, Server, Streams, begin_query, perform
from privfed.methods import Method, MethodConfig, PublicInfo
from privfed.methods.attack_surface import BlockError
from privfed.testing.federation import PlainFederation
from privfed.testing.population import ITEMS, USERS, client_data, item_info
from privfed.updates import ClientUpdates

SOME = 5
"""Users and candidates where a check looks at a part."""

CLOSE = 1e-4
"""Relative and absolute tolerance of scores that are computed in two ways."""


class MethodCheckError(AssertionError):
    """A method does not keep the contract; the message says what to change."""


@dataclass(frozen=True, slots=True, eq=False)
class Parties:
    """A server, its clients and the federation between them.

    Attributes:
        server: of the method.
        clients: of all users.
        federation: that records every query.
    """

    server: Server
    clients: Clients
    federation: PlainFederation

    def rounds(self, first: int, stop: int) -> "Parties":
        """Run rounds `first` to `stop` - 1."""
        for t in range(first, stop):
            self.server.round(self.federation, t)
        return self

    def state(self) -> dict[str, Tensor]:
        """Everything that both sides keep, as copies."""
        public = {f"server state {name!r}": value for name, value in self.server.state().items()}
        private = {f"client state {name!r}": value for name, value in self.clients.state().items()}
        return {name: value.clone() for name, value in (public | private).items()}


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """The method under test.

    Attributes:
        method: to check.
        settings: that differ from its defaults.
    """

    method: Method
    settings: Mapping[str, Any]

    @property
    def config(self) -> MethodConfig:
        """The settings of all runs."""
        return self.method.config(**self.settings)

    def build(self, chunk: int = USERS) -> Parties:
        """Fresh parties; every call gives the same."""
        data, streams, training = client_data(), Streams.from_seed(7), self.method.training
        public = data.positives if self.method.traits.public_target else None
        info = PublicInfo(USERS, ITEMS, public, NoisySums(USERS), item_info())
        server = training.server(self.config, info, streams)
        clients = training.clients(self.config, data, streams)
        return Parties(server, clients, PlainFederation(clients, streams, USERS, chunk))

    def fail(self, problem: str) -> MethodCheckError:
        """An error that names the method."""
        return MethodCheckError(f"method {self.method.name!r}: {problem}")


def _settings(subject: Subject) -> None:
    try:
        config = subject.config
    except (ValidationError, ValueError) as error:
        given = "these settings" if subject.settings else "its own defaults"
        raise subject.fail(f"{given} are not valid ({_line(error)}); give every setting a valid default") from error
    if not config.model_config.get("frozen") or config.model_config.get("extra") != "forbid":
        raise subject.fail("its settings can change or take unknown keys; extend privfed.methods.MethodConfig")
    for name, info in type(config).model_fields.items():
        if info.annotation is float:
            try:
                subject.method.config(**{**subject.settings, name: math.nan})
            except (ValidationError, ValueError):
                continue
            raise subject.fail(f"setting {name!r} accepts NaN; keep allow_inf_nan=False or give the field a bound")


def _names(subject: Subject) -> None:
    method = subject.method
    texts = {name: getattr(method, name) for name in ("name", "title", "display_name", "source")}
    for what, text in (texts | {"disclosure.reads": method.disclosure.reads}).items():
        if not text:
            raise subject.fail(f"{what} is empty; reports and errors need it, so give it")


def _schema(subject: Subject) -> None:
    one, other = subject.build(), subject.build()
    if not one.server.schema:
        raise subject.fail("its server declares no block; declare what clients may upload in `schema`")
    if schema_digest(one.server.schema) != schema_digest(other.server.schema):
        raise subject.fail(
            "two servers with the same settings declare different schemas; let blocks follow from settings and "
            "public_info alone"
        )
    if subject.method.traits.integers and any(block.kind == "real" for block in one.server.schema.values()):
        raise subject.fail("traits.integers is set and a block is of real numbers; declare it as integer or unset it")


def _steps(subject: Subject) -> None:
    clients, step = subject.build().clients, subject.method.training.step
    steps = getattr(clients, "steps", None)
    if not isinstance(steps, frozenset) or not steps:
        raise subject.fail("its clients declare no steps; set `steps = frozenset({...})` to the names they answer")
    missing = sorted(name for name in steps if not callable(getattr(clients, name, None)))
    if missing:
        raise subject.fail(f"clients declare the step {missing[0]!r} and have no such method; write it or leave it out")
    if step is not None and step not in steps:
        raise subject.fail(f"training.step is {step!r} and clients do not declare it; name one of {sorted(steps)}")
    noisy = frozenset(getattr(clients, "noisy", ()))
    if noisy - steps:
        raise subject.fail(f"`noisy` names {sorted(noisy - steps)[0]!r}, which is no declared step; take it out")
    if subject.method.traits.interaction_level and (step is None or noisy != steps):
        raise subject.fail(
            "traits.interaction_level is set and some step does not train as Call.noisy_steps says; name every step in "
            "`noisy`, or unset the trait"
        )
    call = Call(0, 0, "no such step", 0, torch.arange(1), Streams.from_seed(7), {})
    try:
        perform(clients, call, Message({}))
    except FederationError:
        return
    raise subject.fail("clients answer a step that they do not declare; let `steps` be what they answer")


def _updates(subject: Subject) -> None:
    parties = subject.build()
    method = subject.method
    planned = [schema_digest(query.schema) for query in method.training.program(parties.server)]
    _run(subject, parties, 0, 2)
    first = [query for query in parties.federation.queries if query.round == 0]
    expected = len(planned) + method.training.extra_queries(subject.config)
    if len(first) != expected:
        raise subject.fail(
            f"its first round made {len(first)} queries where `program` and `extra_queries` announce {expected}; "
            f"forecasts charge what is announced, so announce every query"
        )
    if method.traits.uploads_once and any(query.round for query in parties.federation.queries):
        raise subject.fail("traits.uploads_once is set and its server queries clients after the first round; unset it")
    for query in parties.federation.queries:
        if query.individual and method.traits.release == "total":
            raise subject.fail(
                f"its server collects single uploads of step {query.step!r} and traits.release is 'total'; declare "
                f"'individual', or use federation.aggregate"
            )
        for name, block in query.schema.items():
            largest = int(query.uploads[name].abs().max()) if block.kind == "integer" else 0
            if block.bound is not None and largest > block.bound:
                raise subject.fail(
                    f"block {name!r} holds {largest}, above its bound {block.bound}; declare a larger one"
                )


def _attack_surface(subject: Subject) -> None:
    schema, surface = subject.build().server.schema, subject.method.attack_surface
    try:
        blocks = surface.item_blocks(subject.config, schema)
    except BlockError as error:
        raise subject.fail(_line(error)) from error
    if (blocks is not None) != surface.has_item_rows:
        raise subject.fail(
            "attack_surface.has_item_rows and item_blocks disagree; return None from item_blocks where no upload has a "
            "row per item, and blocks elsewhere"
        )
    if blocks is not None:
        dtypes = {name: torch.float32 if block.kind == "real" else torch.int64 for name, block in schema.items()}
        zeros = {name: torch.zeros((2, *block.shape), dtype=dtypes[name]) for name, block in schema.items()}
        for role, values in blocks.read(zeros).items():
            if tuple(values.shape[:2]) != (2, ITEMS):
                raise subject.fail(
                    f"the attack surface reads {role!r} in the shape {tuple(values.shape[1:])} where the catalogue has "
                    f"{ITEMS} items; name blocks with one row per item"
                )


def _determinism(subject: Subject) -> None:
    one, other = (_run(subject, subject.build(), 0, 2).state() for _ in range(2))
    if different := _different(one, other):
        raise subject.fail(
            f"two equal runs end with different {different}; take every random number from the streams, by address"
        )


def _chunks(subject: Subject) -> None:
    whole, exact = _run(subject, subject.build(), 0, 1), subject.method.training.bit_parity
    what, tolerance = ("bits", 0.0) if exact else ("numbers", CLOSE)
    for chunk in (1, 7):
        parts = subject.build(chunk)
        cohort = parts.federation.sample_cohort(0)
        for query in whole.federation.queries:
            # The same message as in one chunk: a server may amplify rounding from one query to the next.
            sent = parts.federation.answer(query.step, cohort, query.message, query.schema, individual=query.individual)
            if different := _different(query.uploads, sent, tolerance):
                raise subject.fail(
                    f"in chunks of {chunk} clients step {query.step!r} sends other {what} in {different!r}; let no "
                    f"client's numbers depend on its company (privfed.compute.tiles pads matrix products), or set "
                    f"training.bit_parity = False where only rounding differs"
                )
        if different := _different(whole.clients.state(), parts.clients.state(), tolerance):
            raise subject.fail(
                f"in chunks of {chunk} clients a round leaves other {what} in client state {different!r}; keep nothing "
                f"of one call for the next"
            )


def _round_trip(subject: Subject) -> None:
    trained, fresh = _run(subject, subject.build(), 0, 1), subject.build()
    _restore(trained, fresh)
    if different := _different(trained.state(), fresh.state()):
        raise subject.fail(f"load(state()) gives another {different}; let state() hold all that load() needs")
    if different := _different(trained.server.public().shared, fresh.server.public().shared):
        raise subject.fail(f"a server that loads a state publishes another {different!r}; put it into state()")


def _resume(subject: Subject) -> None:
    whole, before, after = _run(subject, subject.build(), 0, 3), _run(subject, subject.build(), 0, 2), subject.build()
    _restore(before, after)
    if different := _different(whole.state(), _run(subject, after, 2, 3).state()):
        raise subject.fail(
            f"a run that stops after round 2 and continues from its state ends with another {different}; keep nothing "
            f"between rounds that state() does not hold"
        )


def _transaction(subject: Subject) -> None:
    trained = _run(subject, subject.build(), 0, 1)
    queries = trained.federation.queries
    for query in queries:
        before = trained.state()
        _answer(trained, query.step, query.message, query.schema)
        _refuse_change(subject, before, trained, query.step, "before it is committed")
        trained.clients.commit()
    before = trained.state()
    trained.clients.discard()
    _refuse_change(subject, before, trained, queries[-1].step, "when something is discarded after it was committed")
    _answer(trained, queries[0].step, queries[0].message, queries[0].schema)
    trained.clients.discard()
    trained.clients.commit()
    _refuse_change(subject, before, trained, queries[0].step, "although it was discarded")


def _refuse_change(subject: Subject, before: Mapping[str, Tensor], parties: Parties, step: str, when: str) -> None:
    if different := _different(before, parties.state()):
        raise subject.fail(
            f"step {step!r} changes {different} {when}; stage private state (PrivateState.stage), so that an aborted "
            f"round leaves no trace"
        )


def _scores(subject: Subject) -> None:
    parties, step = _run(subject, subject.build(), 0, 1), subject.method.training.step
    users, message = torch.arange(SOME), parties.server.public().addressed_to(torch.arange(SOME))
    updates = None
    if step is not None:
        updates = _answer(parties, step, parties.server.public(), parties.server.schema, SOME)
    for own in (None, updates):
        scores = parties.clients.score(users, message, own, None)
        if tuple(scores.shape) != (SOME, ITEMS):
            raise subject.fail(
                f"score(clients, message, updates, None) has the shape {tuple(scores.shape)}; give one row per client "
                f"and one column per item, {(SOME, ITEMS)} here"
            )
        if not scores.isfinite().all():
            raise subject.fail("scores of a trained model are not finite; lower the default learning rates")
        candidates = torch.arange(SOME * SOME).view(SOME, SOME).flip(1)
        some = parties.clients.score(users, message, own, candidates)
        if some.shape != candidates.shape or not some.allclose(scores.gather(1, candidates), CLOSE, CLOSE):
            raise subject.fail(
                "score(clients, message, updates, candidates) differs from those columns of the whole catalogue; give "
                "the score of candidates[c, j] for client c in column j"
            )
    parties.clients.discard()


def _non_finite(subject: Subject) -> None:
    trained = _run(subject, subject.build(), 0, 1)
    last = trained.federation.queries[-1]
    message = trained.server.public() if last.step == subject.method.training.step else last.message
    floats = [name for name, value in message.shared.items() if value.is_floating_point()]
    sent = _answer(trained, last.step, message, last.schema)
    clean = sent.materialise(torch.arange(USERS))
    trained.clients.discard()
    for name in floats:
        poisoned = replace(message, shared={**message.shared, name: torch.full_like(message.shared[name], math.nan)})
        try:
            updates = _answer(trained, last.step, poisoned, last.schema)
        except (ValueError, ArithmeticError, FederationError):
            trained.clients.discard()
            continue
        hidden = updates.finite() and _different(clean, updates.materialise(torch.arange(USERS)))
        trained.clients.discard()
        if hidden:
            raise subject.fail(
                f"step {last.step!r} turns NaN in {name!r} into finite uploads; pass NaN on or raise an error, so that "
                f"the guard refuses the upload"
            )


def _nobody(subject: Subject) -> None:
    trained = _run(subject, subject.build(), 0, 2)
    for query in trained.federation.queries:
        try:
            _answer(trained, query.step, query.message, query.schema, 0)
        except (KeyError, UpdateError) as error:
            raise subject.fail(
                f"a call of step {query.step!r} for no clients raises {type(error).__name__}: {_line(error)}; nodes "
                f"take that as a query that nobody can answer, so look up tensors and blocks by what messages declare"
            ) from error
        except Exception:  # noqa: S112 (a step need not work for nobody)
            continue
        finally:
            trained.clients.discard()


CHECKS: Mapping[str, Callable[[Subject], None]] = {
    "settings": _settings,
    "names": _names,
    "schema": _schema,
    "steps": _steps,
    "updates": _updates,
    "attack surface": _attack_surface,
    "determinism": _determinism,
    "chunks": _chunks,
    "state": _round_trip,
    "resume": _resume,
    "transaction": _transaction,
    "scores": _scores,
    "non-finite values": _non_finite,
    "call of nobody": _nobody,
}
"""All checks by name, in the order in which they are run."""


def check_method(method: Method, *, only: str | None = None, **settings: Any) -> None:
    """Check that a method keeps the contract that privacy plans, engines, attacks and checkpoints rely on.

    Args:
        method: to check; it need not be registered.
        only: name of one check; None runs all.
        **settings: of the method, where its defaults are too large for a population of 24 users and 40 items.

    Raises:
        MethodCheckError: the first failure, in one sentence that says what to do.
        KeyError: `only` is the name of no check.
    """
    subject = Subject(method, settings)
    for check in CHECKS.values() if only is None else (CHECKS[only],):
        check(subject)


def _run(subject: Subject, parties: Parties, first: int, stop: int) -> Parties:
    try:
        return parties.rounds(first, stop)
    except FederationError as error:
        raise subject.fail(f"a round fails: {_line(error)}; mend the step or the query") from error


def _answer(
    parties: Parties, step: str, message: Message, schema: Mapping[str, Any], count: int = USERS
) -> ClientUpdates:
    """One more answer of the first users, outside of any round."""
    users = torch.arange(count)
    call = Call(1, 1, step, 0, users, parties.federation.streams, schema)
    begin_query(parties.clients, step, message)
    return perform(parties.clients, call, message.addressed_to(users))


def _restore(source: Parties, target: Parties) -> None:
    target.server.load({name: value.clone() for name, value in source.server.state().items()})
    target.clients.load({name: value.clone() for name, value in source.clients.state().items()})


def _different(one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float = 0.0) -> str | None:
    """The first name whose tensors differ by more than the tolerance; None where all are equal."""
    if one.keys() != other.keys():
        return ", ".join(sorted(one.keys() ^ other.keys()))
    return next((name for name in one if not _equal(one[name], other[name], tolerance)), None)


def _equal(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, tolerance, tolerance, equal_nan=True)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].strip().rstrip(".") or type(error).__name__
