"""A node's own policy: what it takes part in, in a file of its own that no server can weaken.

    [policy]                        # node.toml, all keys optional
    min_nodes = 3                   # smallest number of nodes in a masked sum
    min_own_users = 5               # smallest number of this node's users in a sum that it sends
    max_rounds = 1000               # rounds of all runs together
    max_epsilon = 8.0               # sum over all runs; leave out for no bound
    max_delta = 1e-5                # sum over all runs, too
    tier = "careful"                # which budget of a run with tiers its users chose
    helper = "HELPER_PUB"           # second server of sums between two servers that it accepts; without, none
    donors = "7,203-219"            # users who consented to opening their history
    max_clip_norm = 10.0
    min_noise_multiplier = 0.5
    methods = ["feddae", "private-gram"]
    mechanisms = ["secure_sum", "distributed_gaussian"]

The server announces an experiment; a node compares it with this before it makes anything, compares every query with
what was announced, and counts rounds and epsilon in a ledger of its own.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from privfed.engines.nodes.errors import PolicyRefused, StateError
from privfed.engines.nodes.files import read_file
from privfed.privacy import Mechanism, PrivacyPlan, configure
from privfed.privacy.user_ranges import among

FILE = "node.toml"


class Policy(BaseModel):
    """What a node insists on.

    Attributes:
        min_nodes: smallest number of nodes whose masked inputs are added.
        min_threshold: smallest number of nodes that rebuild a mask together; up to one less may work for the server.
        min_users: smallest number of users in a sum, counted by the node itself: those of the organisations that are in
            it, by the federation file, whom the sampling rule chooses.
        min_own_users: smallest number of the node's own users in a sum that it sends.
        max_runs: runs that it takes part in at the same time.
        max_rounds: rounds, over all runs, in which anything leaves.
        max_epsilon: privacy loss of one of its users, added up over all runs; null sets no bound, and then plans that
            guarantee nothing are a matter of `mechanisms`.
        max_epsilon_per_run: likewise of a single run.
        max_delta: deltas at which runs report epsilon, added up over all runs.
        max_clip_norm: largest clip norm; a plan without a clip is refused where this is set.
        min_noise_multiplier: least noise over the clip norm; a plan without noise is refused where this is set.
        tier: of the node's users, where a run lets people choose a budget; empty for the most careful one. A run keeps
            the tier that the policy named when the node joined it.
        methods: names of methods; null allows all that are installed here.
        mechanisms: kinds of privacy mechanisms.
        donors: numbers, as ranges, of the node's users who consented to opening their history to servers. A run may
            name them as donors, and no other user of the node: donors are in no sum, so whom a server could name, it
            could leave out of sums at will.
        helper: Ed25519 key, hexadecimal, of the helper whom the node trusts not to collude with the server; empty
            refuses runs whose sums are made between two servers.
        own_noise_suffices: whether noise that is added in shares must be enough with the shares of this node's own
            users that take part; the number of others in a sum is the server's word.
        allow_simulation: whether keys of users may follow from the server's seed, which protects nobody: for trials.
        evaluate: whether sums of metrics over its users may leave, exactly and outside the ledger.
        max_message_mib: largest message it reads.
        max_setting: largest number among a method's settings: widths and local steps take the node's memory and time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min_nodes: int = Field(3, ge=3, description="smallest number of nodes in a masked sum")
    min_threshold: int = Field(2, ge=2, description="smallest number of nodes that together rebuild a mask")
    min_users: int = Field(0, ge=0, description="smallest number of users in a sum")
    min_own_users: int = Field(5, ge=1, description="smallest number of the node's own users in a sum")
    max_runs: int = Field(8, ge=1, le=1000, description="runs at the same time")
    max_rounds: int = Field(1000, ge=1, description="rounds of all runs together")
    max_epsilon: float | None = Field(None, gt=0, description="of one of its users, over all runs together")
    max_epsilon_per_run: float | None = Field(None, gt=0, description="of one of its users, in a single run")
    max_delta: float = Field(1e-5, gt=0, lt=1, description="sum of the deltas of all runs")
    max_clip_norm: float | None = Field(None, gt=0, description="largest clip norm of an upload")
    min_noise_multiplier: float | None = Field(None, gt=0, description="least noise over the clip norm")
    tier: str = Field("", description="budget of its users in runs with tiers; empty for the most careful one")
    methods: tuple[str, ...] | None = Field(None, description="names of methods it trains; null for all")
    mechanisms: tuple[str, ...] = Field(
        ("secure_sum", "distributed_gaussian"), description="kinds of mechanisms it sends anything under"
    )
    donors: str = Field("", description="users who consented to opening their history, as ranges of numbers")
    helper: str = Field(
        "", pattern=r"^([0-9a-f]{64})?$", description="key of the helper it trusts not to collude with the server"
    )
    own_noise_suffices: bool = Field(
        default=True, description="ask that the noise shares of the node's own users be enough by themselves"
    )
    allow_simulation: bool = Field(default=False, description="let keys follow from the server's seed: for trials")
    evaluate: bool = Field(default=False, description="let exact sums of metrics over its users leave")
    max_message_mib: int = Field(1024, ge=1, description="largest message it reads, in MiB")
    max_setting: float = Field(100_000, gt=0, description="largest number among a method's settings")

    @model_validator(mode="after")
    def _threshold_fits(self) -> Self:
        if self.min_threshold >= self.min_nodes:
            raise ValueError(
                f"min_threshold = {self.min_threshold} of other nodes needs more than {self.min_nodes} nodes: raise "
                f"min_nodes or lower min_threshold"
            )
        return self

    @field_validator("donors")
    @classmethod
    def _donors_are_ranges(cls, donors: str) -> str:
        among(donors, np.empty(0, np.int64))
        return donors

    @field_validator("mechanisms")
    @classmethod
    def _mechanisms_exist(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [kind for kind in kinds if kind not in Mechanism.members]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no mechanism: choose among {', '.join(Mechanism.members)}")
        return kinds

    @classmethod
    def read(cls, path: Path) -> "Policy":
        """The policy in a TOML file, under `[policy]`.

        Raises:
            StateError: the file is missing or no TOML.
            PlanError: an unknown key or a bad value, in one sentence.
        """
        try:
            table = tomllib.loads(read_file(path).decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StateError(f"{path} is no TOML ({error}); mend the file") from error
        return configure(cls, table.get("policy", {}))

    def accept_plan(self, method: str, plan: PrivacyPlan, rounds: int, population: int, *, seeded: bool) -> None:
        """Return quietly where the announced run is allowed.

        Raises:
            PolicyRefused: it is not; the sentence says which line of the policy forbids it.
        """
        mechanism = plan.mechanism
        if seeded and not self.allow_simulation:
            raise PolicyRefused(
                "the run takes users' keys from a seed that the server knows; this node's policy has "
                "allow_simulation = false"
            )
        if self.methods is not None and method not in self.methods:
            raise PolicyRefused(f"the run trains {method}; this node's policy allows {', '.join(self.methods)}")
        if mechanism.kind not in self.mechanisms:
            raise PolicyRefused(
                f"the run's plan is {mechanism.kind}; this node's policy allows {', '.join(self.mechanisms)}"
            )
        if rounds > self.max_rounds:
            raise PolicyRefused(f"the run has {rounds} rounds; this node's policy allows {self.max_rounds} in all")
        if (expected := plan.sampling.expected(population)) < self.min_users:
            raise PolicyRefused(
                f"a round of the run expects {expected:g} users; this node's policy asks for {self.min_users}"
            )
        self._accept_clip(plan)
        self._accept_noise(plan)

    def accept_helper(self, helper: str) -> None:
        """Return quietly where sums may be made between the server and this helper.

        Raises:
            PolicyRefused: they may not.
        """
        if not self.helper:
            raise PolicyRefused(
                "the run's sums are made between two servers, and this node's policy names no helper whom it trusts "
                "not to collude with the server (helper)"
            )
        if self.helper != helper:
            raise PolicyRefused("the federation file names another helper than this node's policy (helper)")

    def accept_settings(self, settings: Mapping[str, JsonValue]) -> None:
        """Return quietly where no number among a method's settings is too large, however deep it lies.

        Raises:
            PolicyRefused: one is; the sentence names it.
        """
        for name, value in settings.items():
            inner = list(value.values()) if isinstance(value, dict) else value
            if isinstance(inner, list):
                self.accept_settings({f"{name}[{place}]": one for place, one in enumerate(inner)})
            elif isinstance(inner, int | float) and not abs(inner) <= self.max_setting:
                raise PolicyRefused(
                    f"the run sets {name} = {inner!s:.20}; this node's policy allows max_setting = {self.max_setting:g}"
                )

    def accept_donors(self, named: Int64[np.ndarray, " named"]) -> None:
        """Return quietly where all users of the node whom a run names as donors have consented.

        Raises:
            PolicyRefused: somebody has not.
        """
        refused = named[~among(self.donors, named)]
        if len(refused):
            raise PolicyRefused(
                f"the run names user {refused[0]} of this node as a donor, who has not consented to it here: name only "
                "users who have, by the policy's own list"
            )

    def accept_clip_norm(self, plan: PrivacyPlan, announced: float | None) -> None:
        """Return quietly where the clip norm that came with a query is one that the plan adapts, and allowed.

        Raises:
            PolicyRefused: it would replace the plan's own, or is above the policy's.
        """
        if announced is None:
            return
        if plan.mechanism.adaptive_clip is None:
            raise PolicyRefused("the server announces a clip norm where the plan fixes it; only the plan's own holds")
        if self.max_clip_norm is not None and announced > self.max_clip_norm:
            raise PolicyRefused(
                f"the server announces a clip norm of {announced:g}; this node's policy allows {self.max_clip_norm:g}"
            )

    def accept_own(self, taking: float) -> None:
        """Return quietly where a sum over so many own users may be sent.

        Raises:
            PolicyRefused: it would show too much of each.
        """
        if 0 < taking < self.min_own_users:
            raise PolicyRefused(
                f"{taking:g} of this node's users take part; its policy asks for {self.min_own_users} in every sum "
                "(min_own_users)"
            )

    def accept_cohort(self, users: float) -> None:
        """Return quietly where a sum over so many users of all organisations in it may be opened.

        Raises:
            PolicyRefused: it would show too much of each.
        """
        if users < self.min_users:
            raise PolicyRefused(
                f"{users:g} users of all organisations are in this sum; this node's policy asks for {self.min_users}"
            )

    def accept_share(self, plan: PrivacyPlan, certain: int) -> None:
        """Return quietly where so many own users, who are sure to take part in a round, are enough.

        Raises:
            PolicyRefused: noise in shares would rest on users of other nodes.
        """
        shares = plan.mechanism.noise_shares
        if not self.own_noise_suffices or shares is None:
            return
        if certain < shares.min_honest:
            raise PolicyRefused(
                f"the plan's noise needs shares of {shares.min_honest} users and {certain} of this node's are "
                "sure to take part; its policy has own_noise_suffices = true"
            )

    def tier_under(self, plan: PrivacyPlan) -> str:
        """The tier of the node's users under a plan; empty where the plan has none.

        Raises:
            PolicyRefused: the plan has tiers, and none of this name.
        """
        if plan.tiers is None:
            return ""
        if self.tier and self.tier not in plan.tiers.names:
            raise PolicyRefused(
                f"the run has the tiers {', '.join(plan.tiers.names)}; this node's policy has tier = {self.tier!r}"
            )
        return self.tier or plan.tiers.names[0]

    def _accept_clip(self, plan: PrivacyPlan) -> None:
        clip = plan.mechanism.clip
        if self.max_clip_norm is None:
            return
        if clip is None or clip.norm > self.max_clip_norm:
            given = "no clip" if clip is None else f"a clip norm of {clip.norm:g}"
            raise PolicyRefused(f"the plan has {given}; this node's policy allows at most {self.max_clip_norm:g}")

    def _accept_noise(self, plan: PrivacyPlan) -> None:
        mechanism, least = plan.mechanism, self.min_noise_multiplier
        if plan.mechanism.unbounded_reason is None and plan.delta > self.max_delta:
            raise PolicyRefused(f"the plan has delta {plan.delta:g}; this node's policy allows {self.max_delta:g}")
        bound = self.max_epsilon if self.max_epsilon_per_run is None else self.max_epsilon_per_run
        if bound is not None and mechanism.unbounded_reason is not None:
            raise PolicyRefused(
                f"the plan guarantees nothing and this node's policy bounds epsilon by {bound:g}: "
                f"{mechanism.unbounded_reason}"
            )
        if least is None:
            return
        noise = mechanism.noise_over_clip
        if noise is None or noise < least:
            given = "no noise" if noise is None else f"a noise multiplier of {noise:g}"
            raise PolicyRefused(f"the plan has {given}; this node's policy asks for at least {least:g}")


def masked(plan: PrivacyPlan) -> bool:
    """Whether uploads of a plan travel as ring elements that only a masked sum opens."""
    return plan.mechanism.masking is not None
