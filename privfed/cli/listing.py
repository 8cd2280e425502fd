"""What `privfed methods` says of methods, read from a file for those of this package, so that none is imported.

`python -m privfed.cli.listing` writes the file anew; a test compares it with the methods themselves.
"""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.contracts import MethodProfile
    from privfed.methods import Method
    from privfed.methods.attack_surface import AttackSurface

LISTING = Path(__file__).with_name("methods.json")

Document = dict[str, Any]


@cache
def stored() -> Document:
    """The file: methods by entry point, units of mechanisms, settings and words of a run."""
    content: Document = json.loads(LISTING.read_text(encoding="utf-8"))
    return content


def document(name: str, method: "Method") -> Document:
    """Everything there is to say about a method, as JSON has it."""
    from dataclasses import asdict

    from privfed.cli.compatibility import EXAMPLES, refusal
    from privfed.cli.early_settings import settable
    from privfed.cli.ranges import values
    from privfed.setup.refusals import method_profile

    fields = method.config.model_fields.items()
    properties = method.config.model_json_schema().get("properties", {})
    known = settable(method.config)
    content = {
        "name": name,
        "title": method.title,
        "source": method.source,
        "server_reads": method.disclosure.reads,
        "release": method.traits.release,
        "profile": asdict(method_profile(method)),
        "host_work": method.training.host_work,
        "settings": {
            key: {
                "default": field.get_default(),
                "values": values(properties[key]),
                **known[key],
            }
            for key, field in fields
        },
        "presets": {
            preset: {
                "our_variant": one.our_variant,
                "settings": {key: {"value": value, "source": one.sources[key]} for key, value in one.settings.items()},
                "clip_norms": [asdict(one.clip(clip)) for clip in method.clip_norms],
            }
            for preset, one in method.presets.items()
        },
        "attack_surface": _surface(method.attack_surface),
        "clip_norms": [asdict(one) for one in method.clip_norms],
        "mechanisms": {
            plan: {
                "runs": (reason := refusal(method, mechanism)) is None,
                "reason": reason,
                "finite_epsilon": mechanism.unbounded_reason is None,
                "reason_if_inf": mechanism.unbounded_reason,
            }
            for plan, mechanism in EXAMPLES.items()
        },
    }
    plain: Document = json.loads(json.dumps(content))
    return plain


def _surface(surface: "AttackSurface") -> list[str]:
    """What attacks are given of a method, a sentence each."""
    logits = "The sigmoid of a score is a confidence, which attacks compare with 1."
    said = {
        "Uploads say something about single items, and attacks look for a user's items there.": surface.has_item_rows,
        "No upload has a row for each item, so no attack looks for single items in one.": not surface.has_item_rows,
        logits: surface.scores_are_logits,
        "The server knows into which direction it drew a client's training, and attacks take it out of an upload.":
            surface.proximal_direction is not None,
        "Devices train in groups, which attacks tell from the uploads.": surface.infer_sizes is not None,
    }  # fmt: skip
    return [sentence for sentence, holds in said.items() if holds]


def documents(names: list[str] | None = None) -> list[Document]:
    """Documents of methods, of this package from the file, of others from themselves.

    Args:
        names: of registered methods or of variables in files; None for all that are registered.
    """
    from privfed.methods.registry import entries

    def one(name: str) -> Document:
        from privfed.methods import method

        return _of_this_package(name) or document(name, method(name))

    return [one(name) for name in (sorted(entries()) if names is None else names)]


def profile(name: str) -> "tuple[str, MethodProfile]":
    """A method's own name and what mechanisms have to know of it, whatever its settings."""
    from privfed.contracts import MethodProfile

    if known := _of_this_package(name.partition(":")[0]):
        return known["name"], MethodProfile(**known["profile"])
    from privfed.methods import method
    from privfed.setup.refusals import method_profile

    registered = method(name)
    return registered.name, method_profile(registered)


def _of_this_package(name: str) -> Document | None:
    """The document of a method that the file has, under its own name; None of others."""
    from privfed.methods.own import of_this_process
    from privfed.methods.registry import entries

    if of_this_process(name) is not None or name not in entries():
        return None
    found: Document | None = stored()["methods"].get(entries()[name].value)
    return found


def content() -> Document:
    """What the file should hold."""
    from privfed.cli.compatibility import EXAMPLES
    from privfed.cli.early_settings import settable
    from privfed.cli.settings import PROTOCOLS
    from privfed.methods.registry import entries
    from privfed.privacy import Mechanism
    from privfed.setup.config import ExperimentConfig

    ours = {name: entry for name, entry in sorted(entries().items()) if entry.value.startswith("privfed.")}
    return {
        "methods": {entry.value: document(name, entry.load()) for name, entry in ours.items()},
        "run": settable(ExperimentConfig),
        "words": {
            "privacy": [mechanism.preset for mechanism in Mechanism.members.values()],
            "protocol": list(PROTOCOLS),
        },
        "units": {plan: mechanism.unit for plan, mechanism in EXAMPLES.items()},
    }


if __name__ == "__main__":
    LISTING.write_text(json.dumps(content(), indent=1) + "\n", encoding="utf-8")
