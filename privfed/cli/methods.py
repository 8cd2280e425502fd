"""`privfed methods`: what can be trained, what its server learns, and which privacy mechanisms fit."""

from typing import Annotated

import typer

from privfed.cli import options
from privfed.cli.screen import Screen

EXAMPLE = "Example: privfed methods. The settings of one method: privfed methods gpfedrec"


def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[METHOD]", help="Show this method with its settings.", show_default=False),
    ] = None,
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List the methods: source, what the server reads by design, and how each goes with each mechanism."""
    from privfed import methods as registry
    from privfed.cli.compatibility import EXAMPLES, fit
    from privfed.cli.show import plain_table

    screen = Screen(as_json, quiet)
    chosen = registry.methods() if name is None else {name: registry.method(name)}
    fits = {m: {words: fit(method_, p) for words, p in EXAMPLES.items()} for m, method_ in chosen.items()}
    settings = {
        m: {key: (field.get_default(), field.description or "") for key, field in method_.config.model_fields.items()}
        for m, method_ in chosen.items()
    }
    screen.document(
        [
            {
                "name": m,
                "title": method_.title,
                "source": method_.source,
                "server_reads": method_.reads,
                "release": method_.release,
                "host_work": method_.host_work,
                "settings": {
                    key: {"default": default, "description": meaning} for key, (default, meaning) in settings[m].items()
                },
                "protections": {
                    words: {
                        "runs": fits[m][words].reason is None,
                        "reason": fits[m][words].reason,
                        "finite_epsilon": fits[m][words].unbounded is None,
                        "reason_if_inf": fits[m][words].unbounded,
                    }
                    for words in EXAMPLES
                },
            }
            for m, method_ in chosen.items()
        ]
    )
    screen.result(
        plain_table(
            "Methods",
            ("method", "what it is", "source", "what its server reads"),
            [(m, method_.title, method_.source, method_.reads) for m, method_ in chosen.items()],
        ),
        plain_table(
            "Which run behind which mechanism, and with which epsilon",
            ("mechanism", "epsilon", "runs", "does not run"),
            [
                (
                    words,
                    "inf" if p.unbounded_reason else "finite" if p.unit == "user" else f"finite, per {p.unit}",
                    ", ".join(m for m, row in fits.items() if not row[words].reason),
                    ", ".join(m for m, row in fits.items() if row[words].reason),
                )
                for words, p in EXAMPLES.items()
            ],
        ),
    )
    if name is not None:
        screen.result(
            plain_table(
                f"Settings of {name}",
                ("--set", "default", "meaning"),
                [(f"method.{key}", str(default), meaning) for key, (default, meaning) in settings[name].items()],
            )
        )
    reasons: dict[str, dict[str, list[str]]] = {}
    for m, row in fits.items():
        for words, f in row.items():
            if f.reason:
                reasons.setdefault(f.reason, {}).setdefault(words, []).append(m)
    refused = []
    for reason, behind in reasons.items():
        who = dict.fromkeys(m for some in behind.values() for m in some)
        refused.append(f"- {', '.join(who)} behind {', '.join(behind)}: {reason}.")
    stays = [f"- {m}: {method_.host_work}." for m, method_ in chosen.items() if method_.host_work]
    unbounded = [f"- {words}: {p.unbounded_reason}." for words, p in EXAMPLES.items() if p.unbounded_reason]
    screen.explain(
        *(["Not possible:", *refused] if refused else []),
        *(["On a GPU the processor still does, between two copies:", *stays] if stays else []),
        "Why epsilon is inf:",
        *unbounded,
    )
