"""`BudgetTiers`: personal budgets in one sum, by which every person chooses how much of a run's noise is theirs.

The upload of a person of the most generous tier counts in full and decides how wide the noise is. Everybody else's
is clipped to the same norm first and then multiplied by the weight of their tier, so under the very same noise their
sensitivity is that much smaller, and their epsilon with it: there is one sum, one noise, and a guarantee for each tier.
Weights are found where a run is assembled (`privfed.privacy.tier_weights`), so that the accountants of the ledger give
every tier at most the epsilon that it was promised.

Which tier a person is in is that person's choice, never a function of the history. A simulation draws it, independently
of all data, or takes it from `members`; who is named nowhere is in the most careful tier.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import BaseModel, Field, field_validator, model_serializer, model_validator

from privfed.privacy.configuring import configure
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.clipping import CONFIG
from privfed.privacy.user_ranges import among, to_ranges
from privfed.privacy.wording import number

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_HIDDEN = "hidden"
_WHOLE = 1e-6
_AUDITED = 1e6
"""What an audit multiplies budgets by: it repeats queries far more often than they allow, and claims nothing by it."""


class BudgetTier(BaseModel):
    """People who chose the same budget.

    Attributes:
        epsilon: what nobody of the tier exceeds in the whole run; 0 for people who contribute nothing.
        share: of all users; announced, so that means divide by a number that does not depend on who chose what.
        weight: what a clipped upload is multiplied by; None until a run is assembled.
        members: user numbers as ranges, such as "0-99,205"; None where a simulation draws them by the shares.
    """

    model_config = CONFIG
    epsilon: float = Field(ge=0, description="total that nobody of the tier may exceed in the whole run; 0 for nothing")
    share: float = Field(ge=0, le=1, description="share of all users that is announced for the tier")
    weight: float | None = Field(default=None, ge=0, le=1, description="what an upload counts; found for epsilon")
    members: str | None = Field(default=None, description="user numbers as ranges, such as 0-99,205")

    @field_validator("members")
    @classmethod
    def _members_are_ranges(cls, text: str | None) -> str | None:
        if text is not None:
            among(text, np.empty(0, dtype=np.int64))
        return text

    @model_serializer
    def _without_what_is_open(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in type(self).model_fields if getattr(self, key) is not None}


class BudgetTiers(BaseModel):
    """All tiers of a plan, the most careful one first.

    Attributes:
        levels: names and tiers.
        hidden: whether nobody is told who chose what, or how many did beyond the announced shares; otherwise it is
            public, and the shares are those of the population.
    """

    model_config = CONFIG
    levels: tuple[tuple[str, BudgetTier], ...] = Field(min_length=1)
    hidden: bool = True

    @model_validator(mode="before")
    @classmethod
    def _from_words_or_tables(cls, data: Any) -> Any:
        return read_tiers(data)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        names, tiers = [name for name, _ in self.levels], [tier for _, tier in self.levels]
        for name in names:
            if not _NAME.fullmatch(name) or name == _HIDDEN:
                raise PlanError(f"tier {name!r} needs another name: lower-case letters, digits, - and _ as in careful")
        total = math.fsum(tier.share for tier in tiers)
        if not math.isclose(total, 1, abs_tol=_WHOLE):
            raise PlanError(f"the shares of the tiers {', '.join(names)} add up to {total:g}: make it 1")
        if not self.largest:
            raise PlanError("no tier has an epsilon above 0, so nobody would contribute: give one of them more")
        weights = [tier.weight for tier in tiers if tier.weight is not None]
        if weights and (len(weights) < len(tiers) or max(weights) != 1):
            raise PlanError("weights are given to some tiers, or none of them is 1: leave all out, they are found")
        ordered = tuple(sorted(self.levels, key=lambda level: (level[1].epsilon, level[0])))
        object.__setattr__(self, "levels", ordered)
        if weights and sorted(weights) != [tier.weight for _, tier in ordered]:
            raise PlanError("a tier of a smaller epsilon has a larger weight than another: leave weights out")
        return self

    @model_serializer
    def _by_name(self) -> dict[str, Any]:
        return {**{name: tier.model_dump() for name, tier in self.levels}, _HIDDEN: self.hidden}

    @property
    def names(self) -> tuple[str, ...]:
        """From the most careful tier to the most generous one."""
        return tuple(name for name, _ in self.levels)

    @property
    def largest(self) -> float:
        """The epsilon that sizes the noise."""
        return max(tier.epsilon for _, tier in self.levels)

    @property
    def sized(self) -> bool:
        """Whether weights are known."""
        return self.levels[0][1].weight is not None

    @property
    def weights(self) -> Float64[np.ndarray, " tiers"]:
        """What an upload of each tier counts.

        Raises:
            PlanError: they are found where a run is assembled, and have not been yet.
        """
        if not self.sized:
            raise PlanError("the weights of the tiers are found where a run is assembled: take the plan of that run")
        return np.array([tier.weight for _, tier in self.levels])

    @property
    def mean_weight(self) -> float:
        """What an average upload counts, by the announced shares."""
        return float(math.fsum(w * tier.share for w, (_, tier) in zip(self.weights.tolist(), self.levels, strict=True)))

    @property
    def named_members(self) -> bool:
        """Whether the plan says who is in which tier; otherwise a simulation draws it, and nodes know."""
        return any(tier.members is not None for _, tier in self.levels)

    @property
    def most_chosen(self) -> str:
        """The tier of the largest announced share."""
        return max(self.levels, key=lambda level: level[1].share)[0]

    @property
    def label(self) -> str:
        """All tiers in a few words."""
        return "tiers " + ", ".join(f"{name} {number(t.epsilon)} ({t.share:.3g})" for name, t in self.levels)

    def epsilon(self, name: str) -> float:
        """What nobody of the tier is to exceed.

        Raises:
            PlanError: there is none of that name.
        """
        return self.levels[self.position(name)][1].epsilon

    def weight(self, name: str) -> float:
        """What an upload of the tier counts.

        Raises:
            PlanError: there is none of that name.
        """
        return float(self.weights[self.position(name)])

    def position(self, name: str) -> int:
        """Place of a tier among all.

        Raises:
            PlanError: there is none of that name.
        """
        if name not in self.names:
            raise PlanError(f"there is no tier {name!r}: choose one of {', '.join(self.names)}")
        return self.names.index(name)

    def positions(
        self, users: Int64[np.ndarray, " users"], drawn: Float64[np.ndarray, " users"]
    ) -> Int64[np.ndarray, " users"]:
        """The tier of every user, as its place among all.

        Args:
            users: their numbers.
            drawn: a uniform number for each, which nothing but the seed decides.
        """
        if not self.named_members:
            ends = np.cumsum([tier.share for _, tier in self.levels])
            return np.searchsorted(ends, drawn, side="right").clip(max=len(ends) - 1)
        at = np.zeros(len(users), dtype=np.int64)
        for place, (_, tier) in reversed(list(enumerate(self.levels))):
            if tier.members is not None:
                # The more careful tier comes last, so it has whoever is named twice.
                at[among(tier.members, users)] = place
        return at

    def with_weights(self, weights: Mapping[str, float]) -> "BudgetTiers":
        """The same with what was found."""
        return self._changed({name: {"weight": weight} for name, weight in weights.items()})

    def named(self, chosen: Int64[np.ndarray, " users"]) -> "BudgetTiers":
        """The same with everybody's public choice (as places among all tiers) written down, and the shares that follow.

        Args:
            chosen: of the users 0, 1, ...
        """
        by_tier = {name: np.flatnonzero(chosen == at) for at, name in enumerate(self.names)}
        return self._changed(
            {name: {"share": len(of) / len(chosen), "members": to_ranges(of)} for name, of in by_tier.items()}
        )

    def with_everybody_in(self, name: str) -> "BudgetTiers":
        """The same, with all users in one tier: what an audit of that tier runs under."""
        everybody = {
            other: {"share": float(other == name), "members": None, "epsilon": _AUDITED * tier.epsilon}
            for other, tier in self.levels
        }
        return self._changed(everybody)

    def _changed(self, fields: Mapping[str, Mapping[str, Any]]) -> "BudgetTiers":
        tables = {name: tier.model_dump() | dict(fields[name]) for name, tier in self.levels}
        return BudgetTiers.model_validate({**tables, _HIDDEN: self.hidden})


def read_tiers(given: Any) -> Any:
    """Fields of `BudgetTiers` from `careful=1:0.8,generous=8:0.2`, or from tables (or pairs) by name, and `hidden`.

    Raises:
        PlanError: it is neither.
    """
    if isinstance(given, str):
        words = [_word(part.strip(), given) for part in given.split(",") if part.strip()]
        named = [name for name, _ in words]
        if twice := [name for name in named if named.count(name) > 1]:
            raise PlanError(f"tiers {given!r}: {twice[0]!r} is named twice, so leave one of them out")
        if not {*named} - {_HIDDEN}:
            raise PlanError(f"tiers {given!r} name no tier: give words such as careful=1:0.8,generous=8:0.2")
        given = dict(words)
    if not isinstance(given, Mapping):
        raise PlanError(f"tiers = {given!r} is not allowed: give words such as careful=1:0.8,generous=8:0.2, or tables")
    if "levels" in given:
        return given
    tiers = {str(key): _tier(str(key), value) for key, value in given.items() if key != _HIDDEN}
    return {"levels": tuple(tiers.items()), _HIDDEN: given.get(_HIDDEN, True)}


def _word(part: str, text: str) -> tuple[str, Any]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if name == _HIDDEN:
        return name, value
    epsilon, colon, share = value.partition(":")
    try:
        return name, {"epsilon": float(epsilon), "share": float(share)}
    except ValueError:
        pass
    del equals, colon
    raise PlanError(
        f"tiers {text!r}: {part!r} is not of the form name=epsilon:share, as in careful=1:0.8,generous=8:0.2"
    )


def _tier(name: str, value: Any) -> BudgetTier:
    """A tier from its table, or from a pair (epsilon, share)."""
    if isinstance(value, tuple | list) and len(value) == 2:
        value = {"epsilon": value[0], "share": value[1]}
    if not isinstance(value, Mapping):
        raise PlanError(f"tiers.{name} = {value!r} is not allowed: give a table with epsilon and share")
    try:
        return configure(BudgetTier, value)
    except PlanError as error:
        raise PlanError(f"tiers.{name}.{error}") from error
