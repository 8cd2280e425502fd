"""`PrivacyPlan`: the one frozen object from which both the code that runs and the claim are derived.

A plan names one mechanism, who takes part, and a delta. The device (`ClientGuard`), the server (`ServerGuard`),
the ledger and the guarantee all read the same plan, so they cannot drift apart.
"""

import contextlib
import hashlib
import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from privfed.contracts import NoisySums
from privfed.privacy.configuring import configure
from privfed.privacy.epsilon import MIN_DELTA
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Empty, Event, Exact, SchemaSummary, SharedAccount, Unbounded
from privfed.privacy.mechanisms.base import Neighbours
from privfed.privacy.mechanisms.clipping import CONFIG
from privfed.privacy.mechanisms.registry import AnyMechanism, preset, read_mechanism
from privfed.privacy.mechanisms.sizing import Target
from privfed.privacy.mechanisms.unsized import EPSILON
from privfed.privacy.sampling import All, Sampling
from privfed.privacy.tiers import BudgetTiers, read_tiers
from privfed.privacy.wording import number

_TARGET, _FOR_A_TARGET_ALONE = "target_epsilon", "central_gaussian"
_OF_THE_PLAN = ("delta", "sampling", "upload_bits", "tiers")
_MAX_SLUG = 120
"""File names of reports begin with slugs."""


class PrivacyPlan(BaseModel):
    """One mechanism, who takes part, and the delta at which epsilon is reported.

    Attributes:
        mechanism: what happens to an upload before it is released.
        sampling: who takes part in a round.
        delta: probability with which the epsilon statement may fail, at least `MIN_DELTA`.
        upload_bits: bits of each number of an upload, rounded at random after everything else; None sends 32. Only
            where single uploads are released.
        tiers: budgets that people choose for themselves; None gives everybody the same.
    """

    model_config = CONFIG
    mechanism: AnyMechanism = Field(description="what happens to an upload before it is released")
    sampling: Sampling = Field(default=All(), description="who takes part in a round")
    delta: float = Field(default=1e-5, ge=MIN_DELTA, lt=1, description="the probability with which epsilon may fail")
    upload_bits: int | None = Field(
        default=None, ge=2, le=16, description="bits of each number of a single upload, 2 to 16; null sends 32"
    )

    tiers: BudgetTiers | None = Field(default=None, description="budgets that people choose: name -> epsilon and share")

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Noise is addressed by the plan, so one without tiers has to stay what it was.
        fields: dict[str, Any] = write(self)
        return {key: value for key, value in fields.items() if key != "tiers" or value is not None}

    @model_validator(mode="before")
    @classmethod
    def _open_settings_fit(cls, data: Any) -> Any:
        """A sentence about a target speaks of the plan; about other settings, of the mechanism's own key."""
        if isinstance(data, Mapping) and isinstance(mechanism := data.get("mechanism"), Mapping):
            with contextlib.suppress(ValidationError):
                return {**data, "mechanism": read_mechanism(mechanism)}
        return data

    @model_validator(mode="before")
    @classmethod
    def _target_is_the_mechanism_s(cls, data: Any) -> Any:
        """A target may stand beside delta, as `epsilon` or `target_epsilon`; alone it is for central noise."""
        if not isinstance(data, Mapping):
            return data
        fields = dict(data)
        mechanism = fields.get("mechanism", {"kind": _FOR_A_TARGET_ALONE})
        given = {f"privacy.{key}": fields.pop(key) for key in (EPSILON, _TARGET) if fields.get(key) is not None}
        if isinstance(mechanism, Mapping):
            mechanism = dict(mechanism)
            given |= {key: mechanism.pop(key) for key in (EPSILON, _TARGET) if mechanism.get(key) is not None}
        if not given:
            return data
        if len(given) > 1:
            raise PlanError(f"{' and '.join(given)} are the same target given twice: leave one of them out")
        (epsilon,) = given.values()
        if not isinstance(mechanism, dict):
            raise PlanError(f"epsilon = {epsilon!r} cannot change a mechanism that is built already: give its settings")
        return {**fields, "mechanism": {**mechanism, EPSILON: epsilon}}

    @model_validator(mode="before")
    @classmethod
    def _largest_tier_is_the_target(cls, data: Any) -> Any:
        """Tiers without weights stand in the place of an epsilon: the largest one sizes the noise."""
        if not isinstance(data, Mapping) or data.get("tiers") is None:
            return data
        given = data["tiers"]
        tiers = given if isinstance(given, BudgetTiers) else configure(BudgetTiers, read_tiers(given))
        mechanism = data.get("mechanism", {"kind": _FOR_A_TARGET_ALONE})
        if not isinstance(mechanism, Mapping) or tiers.sized:
            return {**data, "tiers": tiers}
        given = {key: data.get(key) for key in (EPSILON, _TARGET)} | {
            key: mechanism.get(key) for key in ("noise_multiplier", "epsilon0")
        }
        for key, value in given.items():
            if value is not None:
                raise PlanError(_decided(tiers, f"{key} = {value!r} was"))
        epsilon = tiers.largest if mechanism.get(EPSILON) is None else mechanism[EPSILON]
        return {**data, "tiers": tiers, "mechanism": {**mechanism, EPSILON: epsilon}}

    # Below the others, so that it runs before them.
    @model_validator(mode="before")
    @classmethod
    def _words_are_a_table(cls, data: Any) -> Any:
        """A file may give the plan in the words of the command line."""
        return _in_words(data) if isinstance(data, str) else data

    @model_validator(mode="after")
    def _tiers_fit(self) -> Self:
        if self.tiers is None:
            return self
        if (reason := self.mechanism.tier_refusal) is not None:
            raise PlanError(f"tiers cannot be had under the plan {self.mechanism.label!r}: {reason}")
        epsilon = None if self.target is None else self.target.epsilon
        if not self.tiers.sized and epsilon != self.tiers.largest:
            raise PlanError(_decided(self.tiers, "noise was" if epsilon is None else f"epsilon = {epsilon:g} was"))
        return self

    @model_validator(mode="after")
    def _sampling_fits(self) -> Self:
        self.mechanism.refuse_sampling(self.sampling)
        return self

    @model_validator(mode="after")
    def _only_single_uploads_are_rounded(self) -> Self:
        if self.upload_bits is not None and self.mechanism.release == "total":
            in_ring = self.mechanism.masking is not None or self.mechanism.secret_sharing is not None
            why = (
                "whose ring has a width of its own: set bits instead"
                if in_ring
                else "while rounding may lengthen an upload beyond the clip norm that a sum is bounded by: leave it out"
            )
            raise PlanError(
                f"upload_bits rounds single uploads, and under the plan {self.mechanism.label!r} only their sum is "
                f"released, {why}"
            )
        return self

    @classmethod
    def named(cls, name: str, **fields: Any) -> "PrivacyPlan":
        """A plan by its preset name.

        Args:
            name: the `preset` of a registered mechanism, such as `none`, `local-laplace` or `secure-sum`.
            **fields: settings of the mechanism, or `epsilon` in the place of its noise, which is sized where a run is
                assembled; `delta`, `upload_bits`, `tiers` and `sampling` (a rule or its dictionary) go to the plan.

        Raises:
            PlanError: unknown name, unknown field or bad value, in one sentence.
        """
        return cls.from_dict(_table(name, fields))

    @classmethod
    def parse(cls, text: str) -> "PrivacyPlan":
        """A plan from its command-line form, `name:key=value,key=value`.

        Keys are those of the mechanism, `delta`, `upload_bits`, and `sampling.kind`, `sampling.rate`,
        `sampling.size`; a dot leads into a nested table, as in `adaptive.quantile`. For example
        `central-gaussian:clip_norm=1,noise_multiplier=5,sampling.kind=poisson,sampling.rate=0.1`. `epsilon=8` in the
        place of the noise, and `clip_norm=auto` or none, leave a choice to where a run is assembled.

        Raises:
            PlanError: a word that is not `key=value`, or anything that `named` refuses.
        """
        return cls.from_dict(_in_words(text))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PrivacyPlan":
        """A plan from a TOML or JSON dictionary; raises PlanError with one sentence."""
        return configure(cls, data)

    def to_dict(self) -> dict[str, Any]:
        """The plan as a dictionary that TOML and JSON can hold; `from_dict` reads it back."""
        return self.model_dump(mode="json")

    @property
    def neighbours(self) -> Neighbours:
        """Which two worlds a guarantee compares."""
        return self.mechanism.neighbours

    @property
    def target(self) -> Target | None:
        """What its open settings will be chosen by; None in a plan that can run."""
        return self.mechanism.target

    @property
    def unprotected(self) -> bool:
        """Whether what leaves a device is what its training gave: not clipped, not noised, not rounded."""
        return self.mechanism.clip is None and self.mechanism.noise is None and self.upload_bits is None

    @property
    def amplifies(self) -> bool:
        """Whether secret participation counts as protection."""
        return self.sampling.amplifies(self.mechanism.trust)

    @property
    def fixed_denominator(self) -> bool:
        """Whether means divide by the expected cohort, because the realised one is not to be revealed."""
        return self.mechanism.adds_noise or self.sampling.kind == "poisson"

    def noisy_sums(self, population: int) -> NoisySums:
        """What may be told to a server about the sums of a round: it follows from the plan alone, no data enter it."""
        mechanism, clients = self.mechanism, self.sampling.expected(population)
        clip_norm = None if mechanism.clip is None else mechanism.clip.norm
        return NoisySums(self.counted(population), clip_norm, mechanism.sum_deviation(clients))

    def counted(self, population: int) -> float:
        """Expected number of clients in a sum, each by what its upload counts: what means divide by."""
        clients = self.sampling.expected(population)
        return clients if self.tiers is None else clients * self.tiers.mean_weight

    def check(self, population: int) -> None:
        """Refuse a population that sampling or mechanism does not fit.

        Raises:
            PlanError: why, and what to do.
        """
        self.sampling.check(population)
        self.mechanism.refuse_cohort(self.sampling.max_cohort(population))

    @property
    def name(self) -> str:
        """Short name for tables; sampling, delta and bits of uploads are named where they are not the defaults."""
        extras = [
            *([self.sampling.label] if self.sampling.kind != "all" else []),
            *([f"delta {number(self.delta)}"] if self.delta != type(self).model_fields["delta"].default else []),
            *([f"{self.upload_bits}-bit uploads"] if self.upload_bits is not None else []),
            *([self.tiers.label] if self.tiers is not None else []),
        ]
        return ", ".join([self.mechanism.label, *extras])

    @property
    def slug(self) -> str:
        """The plan as a file name; two different plans never share one."""
        defaults = type(self).model_fields
        parts = [_slug(self.mechanism)]
        if self.sampling.kind != "all":
            parts.append(_slug(self.sampling))
        if self.delta != defaults["delta"].default:
            parts.append(f"delta-{number(self.delta)}")
        if self.upload_bits is not None:
            parts.append(f"upload-bits-{self.upload_bits}")
        if self.tiers is not None:
            parts.append(f"tiers-{_digest(self.tiers)}")
        return "-".join(parts).lower()


def _table(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The table of a plan by its preset name; what is the plan's own stands beside the mechanism."""
    own = {key: fields.pop(key) for key in _OF_THE_PLAN if key in fields}
    return {"mechanism": {**preset(name), **fields}, **own}


def _in_words(text: str) -> dict[str, Any]:
    """The table of a plan in its command-line form."""
    name, _, tail = text.strip().partition(":")
    fields: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in tail.split(","))):
        key, equals, value = (piece.strip() for piece in word.partition("="))
        if not (key and equals and value):
            raise PlanError(f"privacy plan {text!r}: {word!r} is not of the form key=value")
        *path, last = key.split(".", 1) if key.startswith("block_norms.") else key.split(".")
        table = fields
        for step in path:
            table = table.setdefault(step, {})
            if not isinstance(table, dict):
                raise PlanError(f"privacy plan {text!r}: {step} is given both as a value and as a table")
        if last in table:
            raise PlanError(f"privacy plan {text!r}: {key} is given twice")
        table[last] = _value(value)
    return _table(name.strip(), fields)


def _decided(tiers: BudgetTiers, what: str) -> str:
    return (
        f"tiers decide the noise, by the largest epsilon of theirs ({tiers.largest:g}), and {what} given beside them: "
        "leave one of the two out"
    )


def _slug(part: BaseModel) -> str:
    """`kind` and every field that differs from its default, in order; nested or long ones as a digest."""
    words = [str(part.kind).replace("_", "-")] if hasattr(part, "kind") else []
    nested = False
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if name != "kind" and value != field.default:
            nested |= isinstance(value, BaseModel | tuple)
            words.append(f"{name.replace('_', '-')}-{number(value) if isinstance(value, float) else value}")
    slug = "-".join(words)
    if not nested and len(slug) <= _MAX_SLUG:
        return slug
    return f"{words[0]}-{_digest(part)}"


def _digest(part: BaseModel) -> str:
    return hashlib.sha256(part.model_dump_json().encode()).hexdigest()[:12]


def _value(text: str) -> int | float | str:
    """A command-line value as a number where it is one."""
    for kind in (int, float):
        try:
            number = kind(text)
            return number if math.isfinite(number) else text
        except (ValueError, OverflowError):
            continue
    return text


def event_for(plan: PrivacyPlan, schema: SchemaSummary, population: int, weight: float = 1.0) -> Event:
    """The one event that a query of `schema` is under `plan`: the only place where a plan turns into one.

    Args:
        plan: the run's privacy plan.
        schema: names of the blocks that the query declares, and the share of the clip norm that it may use.
        population: number of users, for whose sum a ring must have room.
        weight: of the tier of the person whom it is about; 1 is the most generous one.

    Returns:
        `Empty` only when nothing is declared, or nothing of that person counts; `Unbounded` when the plan bounds
        nothing about real blocks; `Exact` when an integer block is declared; otherwise the mechanism's noise over its
        sensitivity.
    """
    mechanism = plan.mechanism
    if not schema.real and not schema.integer:
        return Empty()
    if schema.real and mechanism.unbounded_reason is not None:
        return Unbounded(reason=mechanism.unbounded_reason)
    if schema.integer:
        return Exact(blocks=schema.integer)
    max_cohort = plan.sampling.max_cohort(population)
    if weight == 0:
        return Empty()
    if schema.refreshes > 1:
        whole = mechanism.account_event(schema, max_cohort, weight)
        return SharedAccount(name=", ".join(schema.real), queries=schema.refreshes, whole=whole)
    return mechanism.event(schema, max_cohort) if weight == 1 else mechanism.weighted_event(schema, max_cohort, weight)
