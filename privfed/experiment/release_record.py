"""Releases of a run, kept so that other settings can be tried on them: what is made of a release costs nothing more.

A candidate's server runs as if it asked itself, and is answered from the record. It has to ask, word for word, what the
first one asked, for another query would be another release.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from pydantic import JsonValue

from privfed.contracts import Schema, schema_digest
from privfed.engines.witness import message_digest
from privfed.federation import Cohort, Federation, Individual, Message, Server, Total
from privfed.privacy import PlanError
from privfed.setup.assembly import Assembly


@dataclass(frozen=True, slots=True)
class _Release:
    asked: tuple[int, str, str, bytes]
    total: Total


@dataclass(slots=True, eq=False)
class ReleaseRecord:
    """All sums that were released to a server, in order.

    Attributes:
        kept: releases, each with what it answered.
        cohorts: cohort of every round.
    """

    kept: list[_Release] = field(default_factory=list)
    cohorts: dict[int, Cohort] = field(default_factory=dict)

    def recording(self, server: Server) -> Server:
        """The same server, whose releases are kept."""
        return _Recording(server, self)

    def server(self, assembly: Assembly, settings: Mapping[str, JsonValue]) -> Server:
        """The server of other settings, after all rounds.

        Raises:
            PlanError: it asks for something else than what was released.
        """
        config = assembly.config
        other = config.model_copy(update={"method": {**config.method, **settings}}).settings()
        server = assembly.registered.training.server(other, assembly.public_info, assembly.streams)
        replay = _Replay(self, assembly.registered.name, settings)
        for t in range(config.rounds):
            server.round(replay, t)
        return server


def _asked(step: str, cohort: Cohort, message: Message, schema: Schema) -> tuple[int, str, str, bytes]:
    return cohort.round, step, schema_digest(schema), message_digest(message)


def _copied(total: Total) -> Total:
    """A server may work in place."""
    return replace(total, sums={name: values.clone() for name, values in total.sums.items()})


@dataclass(slots=True, eq=False)
class _Recording:
    real: Server
    releases: ReleaseRecord

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def round(self, federation: Federation, t: int) -> None:
        self.real.round(_Recorder(federation, self.releases), t)


@dataclass(slots=True, eq=False)
class _Recorder:
    real: Federation
    releases: ReleaseRecord

    def sample_cohort(self, round: int) -> Cohort:
        cohort = self.releases.cohorts[round] = self.real.sample_cohort(round)
        return cohort

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        asked = _asked(step, cohort, message, schema)
        total = self.real.aggregate(step, cohort, message, schema)
        self.releases.kept.append(_Release(asked, _copied(total)))
        return total

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        return self.real.collect(step, cohort, message, schema)


@dataclass(slots=True, eq=False)
class _Replay:
    releases: ReleaseRecord
    method: str
    settings: Mapping[str, JsonValue]
    answered: int = 0

    def sample_cohort(self, round: int) -> Cohort:
        return self.releases.cohorts[round] if round in self.releases.cohorts else self._refuse()

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        if self.answered == len(self.releases.kept):
            self._refuse()
        release = self.releases.kept[self.answered]
        if release.asked != _asked(step, cohort, message, schema):
            self._refuse()
        self.answered += 1
        return _copied(release.total)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        del step, cohort, message, schema
        self._refuse()

    def _refuse(self) -> NoReturn:
        words = ", ".join(f"{name} = {value}" for name, value in self.settings.items())
        raise PlanError(
            f"{self.method} with {words} asks for something else than what was released, which would be another "
            "release: leave that setting out of the grid"
        )
