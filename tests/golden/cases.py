"""The runs that `digests.py` digests, in words of the command line.

A word such as `<wire>` stands for one of the spellings in `SPELLINGS`: whichever the checkout takes. Add a spelling
there when a setting is renamed; nothing else has to change.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SPELLINGS: dict[str, tuple[str, ...]] = {
    "wire=law": ("wire=law", "fidelity=analytic"),
    "wire=exact": ("wire=exact", "fidelity=exact"),
    "wire=protocol": ("wire=protocol", "fidelity=protocol"),
    "taps.coins": ("taps.coins", "taps.inclusion"),
    "taps.places": ("taps.places",),
    "taps.recipes": ("taps.recipes", "taps.training_oracles"),
    "taps.shadows": ("taps.shadows",),
    "cover": ("cover", "padding"),
    "every_row": ("every_row", "full_support"),
    "own_rows": ("own_rows", "no_padding"),
    "method.pull": ("method.pull", "method.proximal", "method.proximal_weight"),
    "blocks=held": ("blocks=held", "blocks=participating", "blocks=own"),
    "drawn": ("drawn", "distribution"),
}
"""Placeholder -> spellings, oldest first."""

PLANS = (
    ("none", "none"),
    ("none-total", "none:release=total"),
    ("clip", "clip:clip_norm=1"),
    ("published-noise", "published-noise:scale=0.3"),
    ("local-laplace", "local-laplace:epsilon0=1,clip_norm=1"),
    ("local-gaussian", "local-gaussian:clip_norm=1,noise_multiplier=1"),
    ("interaction-dpsgd", "interaction-dpsgd:clip_norm=1,noise_multiplier=1"),
    ("central-gaussian", "central-gaussian:clip_norm=1,noise_multiplier=1"),
    ("secure-sum", "secure-sum:clip_norm=1"),
    ("shared-sum", "shared-sum:clip_norm=1"),
    ("distributed-gaussian", "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=20"),
)
"""One plan of every mechanism; every method is run, or refused, behind each."""

_SMALL: dict[str, tuple[str, ...]] = {
    "popularity": (),
    "fedmf": ("dim=4",),
    "fedncf": ("dim=4", "hidden=[4]"),
    "pfedrec": ("dim=4",),
    "gpfedrec": ("dim=4", "hidden=[4]"),
    "fedvae": (),
    "feddae": (),
    "multvae": (),
    "dfmr": ("d=4",),
    "dcf": ("d=4",),
    "lightfr": ("d=4",),
    "eals": ("dim=4",),
    "vals": ("dim=4",),
    "hetefedrec": ("widths=[2,4,6]",),
    "fair": ("dim=4",),
    "fedrap": ("dim=4",),
    "fedrecon": ("dim=4",),
    "colr": ("dim=4", "rank=2"),
    "private-gram": (),
    "private-gram-year": ("refreshes=2",),
    "dpals": ("dim=4",),
    "private-autoencoder": ("dim=4", "steps=3"),
    "puresvd": (),
    "ials": (),
    "ease": (),
    "fedcia": (),
    "fedlightgcn": ("dim=4",),
    "fedpergnn": ("dim=4", "pseudo_items=5"),
    "metamf": ("dim=4", "memory=6", "hidden=6"),
    "mf": ("dim=4",),
    "neumf": ("dim=4", "mlp_dim=4", "hidden=[4]"),
    "lightgcn": ("dim=4",),
    "sgl": ("dim=4",),
    "logmf": ("dim=4",),
    "recvae": ("latent=4", "hidden=6"),
    "centdae": ("latent=4",),
}
"""Every registered method with settings that make it small."""

_CODES = ("dfmr", "dcf", "lightfr")


@dataclass(frozen=True)
class Case:
    """Commands whose results are digested.

    Attributes:
        name: of the case, with slashes for patterns.
        steps: how a command is run (`command`, `torchrun`, `killed 0`, `killed 1`), and its words.
        nodes: instead, what `nodes_adapter` is given.
    """

    name: str
    steps: Sequence[Sequence[str]] = ()
    nodes: dict[str, Any] | None = field(default=None)


def _run(
    method: str,
    plan: str,
    *settings: str,
    data: str = "times.csv",
    rounds: int = 2,
    out: str = "{out}",
    options: Sequence[str] = (),
) -> list[str]:
    own = [f"method.{text}" for text in _SMALL[method]]
    sets = ["evaluate_every=1", "checkpoint_every=1", "protocol.k=[5]", "taps.users=12", *own, *settings]
    return [
        "run", method, "--data", data if data.startswith("synthetic") else f"{{data}}/{data}", "--rounds", str(rounds),
        "--seed", "3", "--privacy", plan, "--out", out, "--json",
        *(word for text in sets for word in ("--set", text)), *options,
    ]  # fmt: skip


def _funnel(method: str, plan: str, *settings: str, **more: Any) -> list[str]:
    return _run(method, plan, "split.target=buy", *settings, data="behaviours.csv", **more)


def _wide(plan: str) -> str:
    """Whole numbers of code methods need a wide ring."""
    return f"{plan},bits=64" if plan.startswith("secure-sum") else plan


def _method_cases() -> list[Case]:
    return [
        Case(
            f"method/{method}/{label}",
            [["command", *(_funnel if method in _CODES else _run)(method, _wide(plan) if method in _CODES else plan)]],
        )
        for method in _SMALL
        for label, plan in PLANS
    ]


_POISSON = ",sampling.kind=poisson,sampling.rate=0.5"
_SHARES = "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=10"
_GAUSSIAN = "central-gaussian:clip_norm=1,noise_multiplier=1"
_ALL_TAPS = ('<taps.places>=["raw","wire","sum","model"]', "<taps.coins>=0.2")


def _mechanism_cases() -> list[Case]:
    plans: dict[str, tuple[str, ...]] = {
        "adaptive-clip": ("fedmf", f"{_GAUSSIAN},adaptive.count_noise=5{_POISSON}"),
        "adaptive-clip-all": ("fedmf", f"{_GAUSSIAN},adaptive.quantile=0.3"),
        "poisson": ("feddae", _GAUSSIAN + _POISSON),
        "fixed": ("fedncf", "local-gaussian:clip_norm=1,noise_multiplier=1,sampling.kind=fixed,sampling.size=20"),
        "epoch": ("gpfedrec", "none:sampling.kind=epoch,sampling.size=20"),
        "delta": ("fedmf", f"{_GAUSSIAN},delta=1e-6"),
        "per-block": ("fedncf", f"{_GAUSSIAN},clipping=per_block"),
        "clip-l2": ("pfedrec", "clip:clip_norm=1,order=2"),
        "published-gaussian": ("pfedrec", "published-noise:scale=0.3,law=gaussian"),
        "published-touched": ("pfedrec", "published-noise:scale=0.3,coordinates=touched"),
        "laplace-touched": ("fedmf", "local-laplace:epsilon0=1,clip_norm=1,coordinates=touched"),
        "dpsgd-steps": ("fedncf", "interaction-dpsgd:clip_norm=1,noise_multiplier=1,local_rate=0.3,local_steps=3"),
        "upload-bits": ("gpfedrec", "clip:clip_norm=1,upload_bits=8"),
        "upload-bits-noise": ("pfedrec", "local-laplace:epsilon0=2,clip_norm=1,upload_bits=5"),
        "secure-16-bits": ("popularity", "secure-sum:clip_norm=1,bits=16"),
        "secure-stochastic": ("feddae", "secure-sum:clip_norm=1,bits=20,rounding=stochastic"),
        "secure-held": ("fair", "secure-sum:clip_norm=4,<blocks=held>"),
        "secure-poisson": ("hetefedrec", "secure-sum:clip_norm=1" + _POISSON),
        "shares-gaussian": ("hetefedrec", f"{_SHARES},law=discrete_gaussian"),
        "shares-19-bits": ("hetefedrec", f"{_SHARES},bits=19"),
        "shares-poisson-lost": ("fedmf", _SHARES.replace("=10", "=24") + _POISSON),
        "shares-colluding": ("private-gram", f"{_SHARES},colluding=4"),
        "shared-fakes": (
            "fedmf", "shared-sum:clip_norm=2,<cover>.kind=fake_items,<cover>.rho=1,<cover>.<drawn>=uniform,"
            "min_cohort=2", "method.negatives=1",
        ),
        "shared-randomised": (
            "fedmf", "shared-sum:clip_norm=2,<cover>.kind=randomised_response,<cover>.epsilon=1,<cover>.keep=0.5",
            "method.negatives=1",
        ),
        "shared-every-row": ("pfedrec", "shared-sum:clip_norm=2,<cover>.kind=<every_row>,min_cohort=2"),
        "shared-own-rows": ("fedmf", "shared-sum:clip_norm=2,<cover>.kind=<own_rows>,min_cohort=3"),
        "shared-three": ("fedmf", "shared-sum:clip_norm=2,aggregators=3,bits=32"),
    }  # fmt: skip
    found = [
        Case(f"mechanism/{name}", [["command", *_run(m, plan, *more)]]) for name, (m, plan, *more) in plans.items()
    ]
    for kind in ("fake_items,<cover>.rho=1", "randomised_response,<cover>.epsilon=2", "<own_rows>"):
        plan = f"shared-sum:<cover>.kind={kind},min_cohort=2"
        found += [Case(f"mechanism/codes-{kind.partition(',')[0]}", [["command", *_funnel("dfmr", plan)]])]
    return found


def _fidelity_cases() -> list[Case]:
    plans = {
        "laplace": ("fedmf", "local-laplace:epsilon0=1,clip_norm=1"),
        "gaussian": ("fedmf", "local-gaussian:clip_norm=1,noise_multiplier=1"),
        "central": ("feddae", _GAUSSIAN),
        "secure": ("hetefedrec", "secure-sum:clip_norm=1"),
        "held": ("fair", "secure-sum:clip_norm=4,<blocks=held>"),
        "shared": ("pfedrec", "shared-sum:clip_norm=2,<cover>.kind=<every_row>,min_cohort=2"),
        "shares": ("private-gram", _SHARES),
        "shares-many": ("fedmf", _SHARES),
    }
    return [
        Case(f"fidelity/{name}/{wire}", [["command", *_run(method, plan, f"<wire={wire}>")]])
        for name, (method, plan) in plans.items()
        for wire in ("law", "exact", "protocol")
    ]


def _variant_cases() -> list[Case]:
    settings: dict[str, tuple[str, str, tuple[str, ...]]] = {
        "fair-samples": ("fair", "none", ("method.weights=samples", "method.assigned=activity")),
        "fair-roast": ("fair", "none", ("method.subspace=roast",)),
        "fair-pull": ("fair", "none", ("<method.pull>=0.5",)),
        "fair-device": ("fair", "none", ("method.scoring=device",)),
        "hetefedrec-lightgcn": ("hetefedrec", "none", ("method.base=lightgcn",)),
        "hetefedrec-distilled": ("hetefedrec", "none", ("method.decorrelation=0.1", "method.distillation=2")),
        "hetefedrec-adam": ("hetefedrec", "none", ("method.server_optimiser=adam", "method.groups=capacity")),
        "hetefedrec-standalone": ("hetefedrec", "none", ("method.variant=standalone", "method.standalone_steps=3")),
        "gpfedrec-knn": ("gpfedrec", "none", ("method.max_neighbours=5", "method.refresh_every=2")),
        "gpfedrec-sketch": ("gpfedrec", "none", ("method.sketch=16",)),
        "feddae-prior": ("feddae", "secure-sum:clip_norm=1", ("method.popularity_prior=true",)),
        "feddae-uploaded": ("feddae", "none", ("method.upload_local_encoder=true",)),
        "feddae-sgd": ("feddae", "none", ("method.personal_optimiser=sgd",)),
        "all-negatives": ("pfedrec", "none", ("protocol.negatives=all", "protocol.scores=probability")),
        "valid-ranked": ("pfedrec", "none", ("protocol.when_testing=valid_ranked", "protocol.ties=pessimistic")),
        "sampled-candidates": ("fedmf", "none", ("protocol.candidates=sampled", "protocol.n_sampled=9")),
        "best-valid": ("fedncf", "none", ("protocol.select=best_valid",)),
        "received": ("fedmf", "none", ("protocol.state=received",)),
        "ratio": ("fedmf", "none", ("split.kind=ratio", "split.seed=2")),
        "user-time": ("popularity", "none", ("split.kind=user_time",)),
    }
    found = [Case(f"variant/{name}", [["command", *_run(m, plan, *s)]]) for name, (m, plan, s) in settings.items()]
    rating = ("method.task=rating", "protocol.task=rating")
    found += [Case("variant/fair-rating", [["command", *_run("fair", "none", *rating, data="ratings.csv")]])]
    for name, own in {
        "dfmr-balanced": ("method.alpha=0.5", "method.beta=0.5"),
        "dfmr-blocks": ("method.blocks=3", "method.start=server"),
        "dfmr-views": ('method.examinations=["view"]',),
    }.items():
        found += [Case(f"variant/{name}", [["command", *_funnel("dfmr", "none", *own)]])]
    return found


def _chunk_cases() -> list[Case]:
    plans = {
        "fedmf": "local-laplace:epsilon0=1,clip_norm=1",
        "feddae": "secure-sum:clip_norm=1",
        "hetefedrec": _SHARES,
        "fair": "none",
        "dfmr": "shared-sum:<cover>.kind=fake_items,<cover>.rho=1",
        "gpfedrec": _GAUSSIAN.replace("central", "local"),
    }
    return [
        Case(f"chunk/{m}/{size}", [["command", *(_funnel if m in _CODES else _run)(m, plan, f"chunk={size}")]])
        for m, plan in plans.items()
        for size in (7, 20)
    ]


def _resumed_cases() -> list[Case]:
    plans = {
        "gpfedrec": ("local-laplace:epsilon0=1,clip_norm=1", ()),
        "fedmf": (_GAUSSIAN + ",adaptive.count_noise=5" + _POISSON, ()),
        "hetefedrec": ("secure-sum:clip_norm=1", ()),
        "fair": ("none", ("--client-state", "disk")),
        "dfmr": ("shared-sum:<cover>.kind=fake_items,<cover>.rho=1", ()),
    }
    found = []
    for method, (plan, options) in plans.items():
        words = (_funnel if method in _CODES else _run)(method, plan, rounds=3, options=options)
        resume = ["run", "--out", "{out}", "--resume", "--json", *options]
        for swaps in (0, 1):
            steps = [[f"killed {swaps}", *words], ["command", *resume]]
            found.append(Case(f"resumed/{method}/{swaps}", steps))
    for method in ("fedmf", "gpfedrec", "feddae"):
        words = _run(method, "none", options=("--client-state", "disk"))
        found.append(Case(f"disk/{method}", [["command", *words]]))
    return found


def _attack_cases() -> list[Case]:
    runs = {
        "fedmf": ("none", ()),
        "gpfedrec": ("local-laplace:epsilon0=8,clip_norm=1", ()),
        "fedncf": ("clip:clip_norm=1", ("<taps.recipes>=true",)),
        "pfedrec": ("none", ("<taps.recipes>=true",)),
        "feddae": ("secure-sum:clip_norm=1", ()),
        "hetefedrec": (_GAUSSIAN, ()),
        "fair": ("none", ()),
        "dfmr": ("shared-sum:<cover>.kind=fake_items,<cover>.rho=1,min_cohort=2", ()),
        "vals": ("none", ()),
        "private-gram": (_SHARES, ()),
    }
    found = []
    for method, (plan, more) in runs.items():
        words = (_funnel if method in _CODES else _run)(method, plan, *_ALL_TAPS, *more)
        steps = [
            ["command", *words],
            ["command", "attack", "{out}", "--json"],
            ["command", "recommend", "{out}", "--user", "5", "-k", "6", "--json"],
        ]
        if method == "dfmr":
            steps.append(["command", "export", "{out}", "{out}/codes.safetensors", "--json"])
        found.append(Case(f"attack/{method}", steps))
    return found


def _audit(out: str, methods: Sequence[str], plans: Sequence[str], *settings: str) -> list[str]:
    sets = ["taps.users=12", "protocol.k=[5]", *settings]
    return [
        "audit", "--data", "{data}/times.csv", "--rounds", "2", "--seeds", "2", "--workers", "1", "--out", out,
        "--json", *(word for method in methods for word in ("--method", method)),
        *(word for plan in plans for word in ("--privacy", plan)),
        *(word for text in sets for word in ("--set", text)),
    ]  # fmt: skip


def _audit_cases() -> list[Case]:
    first = _audit("{out}/a", ["fedmf"], ["none", "local-laplace:epsilon0=8,clip_norm=1"], "canaries=8")
    second = _audit("{out}/b", ["fedmf"], ["none", "local-laplace:epsilon0=4,clip_norm=1"], "canaries=8")
    sums = _audit("{out}", ["feddae"], [_GAUSSIAN, "secure-sum:clip_norm=1"], "canaries=4")
    return [
        Case(
            "audit/compared",
            [["command", *first], ["command", *second], ["command", "compare", "{out}/a", "{out}/b", "--json"]],
        ),
        Case("audit/sums", [["command", *sums]]),
    ]


def _other_cases() -> list[Case]:
    budgets = {
        "laplace": ("laplace", "--epsilon0", "1", "--participations", "100"),
        "laplace-total": ("laplace", "--epsilon", "8", "--participations", "100"),
        "gaussian": ("gaussian", "--clients", "943", "--rounds", "20", "--rate", "0.3", "--epsilon", "8"),
        "gaussian-noise": ("gaussian", "--clients", "943", "--rounds", "20", "--noise-multiplier", "2"),
    }
    found = [Case(f"budget/{name}", [["command", "budget", *words, "--json"]]) for name, words in budgets.items()]
    found += [Case("methods", [["command", "methods", "--json"]])]
    for method, plan in {"fedmf": "secure-sum:clip_norm=1", "dfmr": "none"}.items():
        words = (_funnel if method in _CODES else _run)(method, plan)
        found.append(Case(f"torchrun/{method}", [["torchrun", *words]]))
    nodes = {
        "feddae": ("secure-sum:clip_norm=1", {"popularity_prior": True}),
        "hetefedrec": (_SHARES, {}),
        "fair": ("secure-sum:clip_norm=1", {"dim": 4}),
        "gpfedrec": ("local-laplace:epsilon0=5,clip_norm=1,upload_bits=7", {"dim": 4, "hidden": [4]}),
        "private-gram": (_SHARES, {}),
        "pfedrec": ("central-gaussian:clip_norm=1,noise_multiplier=1" + _POISSON, {"dim": 4}),
        "dfmr": ("secure-sum:clip_norm=1,bits=64", {"d": 4}),
    }
    for method, (plan, settings) in nodes.items():
        found.append(Case(f"nodes/{method}", nodes={"method": {"name": method, **settings}, "plan": plan}))
    return found


def cases() -> list[Case]:
    """All cases, in the order in which they are run."""
    return [
        *_method_cases(),
        *_mechanism_cases(),
        *_fidelity_cases(),
        *_variant_cases(),
        *_chunk_cases(),
        *_resumed_cases(),
        *_attack_cases(),
        *_audit_cases(),
        *_other_cases(),
    ]


def write_data(folder: Path) -> None:
    """48 users and 40 items: with times; with ratings besides; and with views, carts and purchases."""
    draw = random.Random(1)
    times, ratings, behaviours = (
        ["user,item,timestamp"],
        ["user,item,rating,timestamp"],
        ["user,item,behaviour,timestamp"],
    )
    for user in range(48):
        count = 5 + draw.randrange(10)
        items = sorted(range(40), key=lambda item: draw.random() * (1 + (item % 8 != user % 8)) * (1 + item / 20))
        for moment, item in enumerate(items[:count]):
            times.append(f"{user},{item},{moment}")
            ratings.append(f"{user},{item},{1 + draw.randrange(5)},{moment}")
            behaviours.append(f"{user},{item},buy,{3 * moment + 2}")
        for moment, item in enumerate(items[: count + 6]):
            behaviours.append(f"{user},{item},view,{3 * moment}")
            if draw.random() < 0.5:
                behaviours.append(f"{user},{item},cart,{3 * moment + 1}")
    for name, lines in (("times", times), ("ratings", ratings), ("behaviours", behaviours)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
