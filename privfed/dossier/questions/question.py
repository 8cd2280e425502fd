"""A question of a guideline or a law in our words, and its answer from data: without a citation there is no answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from privfed.dossier.budget import YearlyBudget
from privfed.dossier.environment import Environment
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import Citation, Datum, Evidence

Filler = Literal["controller", "officer", "engineer"]


@dataclass(frozen=True, slots=True)
class SourceText:
    """Where questions come from.

    Attributes:
        name: short, such as "NIST SP 800-226".
        title: in full, with its date.
        address: where it is published.
        read: which text was at hand when the questions were written, and what follows for the references.
    """

    name: str
    title: str
    address: str
    read: str


@dataclass(frozen=True, slots=True)
class Case:
    """All that answers are made from.

    Attributes:
        evidence: of what the dossier is about.
        budget: of the people.
        environment: where the dossier was made.
    """

    evidence: Evidence
    budget: YearlyBudget
    environment: Environment


@dataclass(frozen=True, slots=True)
class Answer:
    """What data say.

    Attributes:
        text: in plain words, with the numbers.
        sources: where every number stands; never empty.
        alarm: whether it is bad news that nobody may miss.
    """

    text: str
    sources: tuple[Citation, ...]
    alarm: bool = False

    def __post_init__(self) -> None:
        if not self.sources:
            raise DossierError(f"the answer {self.text[:60]!r} cites nothing, and no answer is free prose")

    @classmethod
    def from_data(cls, text: str, *data: Datum[Any], alarm: bool = False) -> "Answer":
        """An answer with the places of its data, each once."""
        return cls(text, tuple(dict.fromkeys(datum.source for datum in data)), alarm)


@dataclass(frozen=True, slots=True)
class Unknown:
    """What no data say: who has to fill it, and why."""

    by: Filler
    why: str


Reply = Answer | Unknown


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        id: unique, such as "nist-unit".
        source: where it comes from.
        article: section, paragraph or article there.
        topic: in two or three words.
        wording: in our words.
        reply: what the data say.
    """

    id: str
    source: SourceText
    article: str
    topic: str
    wording: str
    reply: Callable[[Case], Reply]
