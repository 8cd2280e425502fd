"""The record of the deployments registry of OpenDP, which NIST proposed to host: every field of its three tiers.

A field is filled by machine, with the place that its value is from, or refused with who has to fill it. Fields, tiers
and allowed words are those of `schemas/deployments-schema.yaml` in github.com/opendp/deployments-registry-data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privfed.audit.report import formatting
from privfed.dossier.evidence import Citation
from privfed.dossier.questions import nist
from privfed.dossier.questions.question import Answer, Case, Filler, Reply, Unknown

SCHEMA = (
    "github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml, commit 3e9c812a924c, 15 July 2026"
)
Fill = Callable[[Case], "Filled | Unknown"]


@dataclass(frozen=True, slots=True)
class Filled:
    """A value for the registry, with where it is from."""

    value: str | float
    sources: tuple[Citation, ...]


@dataclass(frozen=True, slots=True)
class RegistryField:
    """One field.

    Attributes:
        path: in the record, with dots.
        tier: from which on it is expected.
        fill: what it holds.
    """

    path: str
    tier: int
    fill: Fill


def _by(filler: Filler, why: str) -> Fill:
    return lambda _: Unknown(filler, why)


def _constant(value: str) -> Fill:
    """What every run of privfed is, whatever its record says."""
    return lambda case: Filled(value, ((case.evidence.method or case.evidence.guarantee).source,))


def _answered(reply: Callable[[Case], Reply]) -> Fill:
    """The text of an answer to a question."""

    def fill(case: Case) -> Filled | Unknown:
        found = reply(case)
        return Filled(found.text, found.sources) if isinstance(found, Answer) else found

    return fill


def _reply(name: str) -> Fill:
    return _answered(next(one.reply for one in nist.QUESTIONS if one.id == name))


def _description(case: Case) -> Filled | Unknown:
    one = case.evidence
    if one.method is None or one.plan is None:
        return Unknown("controller", "the ledger of a node names no method")
    mark = " (generated data)" if one.synthetic else ""
    text = f"A recommender trained by {one.method.value} behind {one.plan.value}{mark}."
    return Filled(text, (one.method.source, one.plan.source))


def _variant(case: Case) -> Filled | Unknown:
    own = case.evidence.guarantee
    if not own.value.finite:
        return Unknown("controller", "no variant holds: epsilon is infinite, so this is no deployment of the registry")
    return Filled("Pure DP" if own.value.delta == 0 else "Approximate DP", (own.source,))


def _domain(case: Case) -> Filled | Unknown:
    card = case.evidence.data
    if card is None:
        return Unknown("controller", "no card of the data is recorded")
    users, items = card.value.get("users"), card.value.get("items")
    text = f"Interactions of {users:,} people with a public catalogue of {items:,} items"
    return Filled(text, (card.source,))


def _epsilon(case: Case) -> Filled | Unknown:
    own = case.evidence.guarantee
    if not own.value.finite:
        return Unknown("controller", f"epsilon is infinite: {own.value.reason_if_inf}")
    return Filled(own.value.epsilon, (own.source,))


def _delta(case: Case) -> Filled | Unknown:
    own = case.evidence.guarantee
    return Filled(own.value.delta, (own.source,)) if own.value.finite else Unknown("controller", "nothing is claimed")


def _rho(case: Case) -> Filled | Unknown:
    mu = case.evidence.mu
    return Unknown("engineer", case.evidence.mu_missing) if mu is None else Filled(mu.value**2 / 2, (mu.source,))


def _parameters(case: Case) -> Filled | Unknown:
    mu, own = case.evidence.mu, case.evidence.guarantee
    more = f"mu = {mu.value:.4g} of Gaussian differential privacy. " if mu else ""
    text = f"{more}{' '.join(own.value.assumptions)}" or f"epsilon is infinite: {own.value.reason_if_inf}"
    return Filled(text, (own.source, *([] if mu is None else [mu.source])))


def _model(case: Case) -> Filled | Unknown:
    own = case.evidence.guarantee
    names = {"local": "Local", "central": "Central", "distributed": "Federated"}
    if own.value.trust not in names:
        return Unknown("controller", "there is no mechanism, so no model of trust")
    return Filled(names[own.value.trust], (own.source,))


def _release_type(case: Case) -> Filled | Unknown:
    head = case.evidence.ledger
    if head is None:
        return Unknown("controller", "an audit publishes nothing: whether its runs were released is not recorded")
    many = len({one.source.sha256 for one in case.budget.past}) > 1 or case.evidence.guarantee.value.rounds_counted > 1
    return Filled("Many releases" if many else "One release", (head.source,))


def _release_details(case: Case) -> Filled | Unknown:
    return _reply("nist-total")(case)


def _composition(case: Case) -> Filled | Unknown:
    own, releases = case.evidence.guarantee, case.evidence.releases
    if releases is None:
        return Unknown("engineer", "no release is recorded")
    text = f"{'; '.join(releases.value)}, composed by {own.value.accountant} ({own.value.accountant_version})"
    return Filled(text, (releases.source, own.source))


def _mechanisms(case: Case) -> Filled | Unknown:
    one = case.evidence
    if one.plan is None:
        return Unknown("engineer", "no plan is recorded")
    text = (
        f"{one.plan.value}, by privfed {case.environment.privfed} (source digest {case.environment.own_digest[:12]}). "
        f"{'' if one.randomness is None else one.randomness.value + '.'}"
    ).strip()
    more = [] if one.randomness is None else [one.randomness.source]
    return Filled(text, (one.plan.source, case.environment.source, *more))


def _unit_details(case: Case) -> Filled | Unknown:
    own = case.evidence.guarantee
    return Filled(formatting.compared(own.value.neighbours, own.value.unit), (own.source,))


def _unit(case: Case) -> Filled | Unknown:
    own = case.evidence.guarantee
    return Filled(formatting.named(formatting.UNITS, own.value.unit), (own.source,))


FIELDS = (
    RegistryField("basic.name", 1, _by("controller", "the name of the product")),
    RegistryField("basic.data_curators", 1, _by("controller", "who publishes it")),
    RegistryField("basic.intended_use", 1, _by("controller", "what it is for")),
    RegistryField("basic.data_product_type", 1, _constant("Machine learning model")),
    RegistryField("basic.data_product_region", 1, _by("controller", "which region and law")),
    RegistryField("basic.description", 1, _description),
    RegistryField("basic.publication_date", 1, _by("controller", "when it was published")),
    RegistryField("basic.data_product_sector", 1, _by("controller", "which sector")),
    RegistryField("dp_variant.variant_name", 2, _variant),
    RegistryField("dp_variant.data_domain", 3, _domain),
    RegistryField("dp_variant.unprotected_quantities", 3, _reply("nist-unprotected")),
    RegistryField("privacy_loss.privacy_unit", 2, _unit),
    RegistryField("privacy_loss.privacy_unit_details", 3, _unit_details),
    RegistryField("privacy_loss.privacy_parameters.epsilon", 2, _epsilon),
    RegistryField("privacy_loss.privacy_parameters.delta", 2, _delta),
    RegistryField("privacy_loss.privacy_parameters.rho", 2, _rho),
    RegistryField("privacy_loss.privacy_parameters_details", 3, _parameters),
    RegistryField("deployment_model.model_name", 2, _model),
    RegistryField("deployment_model.model_name_details", 3, _reply("nist-collection")),
    RegistryField("deployment_model.actors", 3, _reply("nist-trust")),
    RegistryField("deployment_model.release_type", 2, _release_type),
    RegistryField("deployment_model.release_type_details", 3, _release_details),
    RegistryField("deployment_model.data_source_type", 2, _by("controller", "whether new data keep coming in")),
    RegistryField("deployment_model.data_source_type_details", 3, _by("controller", "how they do")),
    RegistryField("deployment_model.access_type", 2, _constant("Non-interactive")),
    RegistryField("deployment_model.access_type_details", 3, _reply("nist-queries")),
    RegistryField("accounting.post_processing", 3, _by("engineer", "what is done to releases is in no record")),
    RegistryField("accounting.composition", 3, _composition),
    RegistryField(
        "implementation.preprocessing_and_hyperparameter_tuning", 3,
        _by("engineer", "how data were prepared and settings chosen stands in no ledger"),
    ),
    RegistryField("implementation.mechanisms", 3, _mechanisms),
    RegistryField("implementation.justification", 3, _by("controller", "why these choices were made")),
    RegistryField("administrative.sources", 1, _by("controller", "what was published about it")),
    RegistryField("administrative.notes", 1, _by("controller", "whatever else there is to say")),
    RegistryField("administrative.registry_authors", 1, _by("controller", "who files this record")),
)  # fmt: skip


def registry_record(case: Case) -> dict[str, Any]:
    """The record as the registry nests it, and every field with its tier, its source or who has to fill it."""
    record: dict[str, Any] = {"status": "Draft", "deployment": {}}
    fields = []
    for field in FIELDS:
        found = field.fill(case)
        filled = isinstance(found, Filled)
        value = found.value if isinstance(found, Filled) else f"to be filled by: {found.by}"
        place = record["deployment"]
        *above, last = field.path.split(".")
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
        fields.append(
            {"field": f"deployment.{field.path}", "tier": field.tier, "value": value}
            | (
                {"sources": [str(one) for one in found.sources]}
                if isinstance(found, Filled)
                else {"to_be_filled_by": found.by, "why": found.why}
            )
            | {"filled": filled}
        )
    return {"schema": SCHEMA, "record": record, "fields": fields}
