"""The evaluation protocol: everything that decides what a number of quality means.

Two papers that both print "HR@10" may differ by 15 points because one ranks against 99 sampled items and the
other against the catalogue, because held-out items could never be training negatives, or because ties fall to
the positive. A :class:`Protocol` names each of these choices, and :meth:`Protocol.sentence` is printed with
every number.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Task = Literal["ranking", "rating"]


class Protocol(BaseModel):
    """Protocol of an evaluation.

    Attributes:
        task: "ranking": held-out items are ranked. "rating": held-out ratings are predicted, and the fields that
            speak of candidates, cut-offs and ties mean nothing.
        candidates: "full": a held-out item is ranked among all items the user has not trained on. "sampled": among
            `n_sampled` items the user never interacted with, drawn once. Sampled ranks are optimistic and can reverse
            comparisons (Krichene & Rendle, KDD 2020).
        catalogue: "all": every item counts. "trained": only items that somebody has in training are ranked and
            counted. What nobody trained on cannot be learned by anybody; where a split holds many such items out,
            the first is what users get and the second is what a method can be blamed for.
        when_testing: "valid_left_out": under full ranking a user's validation items are no candidates of the test, as
            the user has them already. "valid_ranked": they compete with the test items, as where a paper's test masks
            its training file alone; all numbers are lower then, popularity's too.
        n_sampled: Sampled items per user; used only with sampled candidates.
        k: Cut-offs of the metrics.
        precision: Also measure Precision at every cut-off; of one held-out item it is HR divided by the cut-off.
        negatives: What training negatives may be drawn from. "train": all items outside the user's training
            items, held-out ones included (nothing of the test is known). "all": only items outside every
            split, as some released code does; training then knows which items are held out, if only by never
            pushing them down.
        scores: "raw": what the model ranks by. "probability": squashed by a float32 sigmoid first, as released
            code of PFedRec and GPFedRec does; saturated scores then tie.
        ties: "random": equal scores are ordered by a seeded draw. "pessimistic": they count against the
            held-out item.
        state: Which client state is scored: "private" (after local training, before the server's answer) or
            "received" (what the user has after receiving it).
        select: Which round is reported: "last", or "best_valid" (the best by validation HR; of ratings, the one
            with the lowest validation RMSE).
        seed: Seed of the sampled candidates and of random ties.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Task = "ranking"
    candidates: Literal["full", "sampled"] = "full"
    catalogue: Literal["all", "trained"] = "all"
    when_testing: Literal["valid_left_out", "valid_ranked"] = "valid_left_out"
    n_sampled: Annotated[int, Field(ge=1)] = 99
    k: tuple[Annotated[int, Field(ge=1, lt=2**63)], ...] = Field(default=(10, 20), min_length=1)
    precision: bool = False
    negatives: Literal["train", "all"] = "train"
    scores: Literal["raw", "probability"] = "raw"
    ties: Literal["random", "pessimistic"] = "random"
    state: Literal["private", "received"] = "private"
    select: Literal["last", "best_valid"] = "last"
    seed: Annotated[int, Field(ge=0)] = 0

    @field_validator("k")
    @classmethod
    def _ascending(cls, k: tuple[int, ...]) -> tuple[int, ...]:
        if list(k) != sorted(set(k)):
            raise ValueError(f"k is {k}; give distinct cut-offs in ascending order, such as (10, 20).")
        return k

    @model_validator(mode="after")
    def _ratings_are_not_ranked(self) -> "Protocol":
        if self.task == "rating" and (self.candidates, self.scores) != ("full", "raw"):
            raise ValueError(
                f'a rating is predicted, not ranked: with task="rating" leave candidates="{self.candidates}" and '
                f'scores="{self.scores}" out, or choose task="ranking"'
            )
        return self

    def sentence(self) -> str:
        """The whole protocol in one plain sentence."""
        negatives = (
            "training negatives may include held-out items"
            if self.negatives == "train"
            else "training negatives never include held-out items (as in some released code; it helps)"
        )
        state = (
            "each user is scored with its private state after local training"
            if self.state == "private"
            else "each user is scored with what it received from the server"
        )
        best = "validation HR" if self.task == "ranking" else "(lowest) validation RMSE"
        select = "the last round" if self.select == "last" else f"the round with the best {best}"
        what = "ratings of items" if self.task == "rating" else "items"
        unseen = "" if self.catalogue == "all" else f"; held-out {what} that nobody trained on are not counted"
        if self.task == "rating":
            measured = (
                "Each user's held-out ratings are predicted as the model gives them, without clipping; errors are "
                f"averaged over ratings, and over users where it says so{unseen}"
            )
        else:
            measured = self._ranking(unseen) + f"; {negatives}"
        return f"{measured}; {state}; the number is from {select}."

    def _ranking(self, unseen: str) -> str:
        only = "" if self.catalogue == "all" else " that somebody trained on and"
        valid = "are left out too" if self.when_testing == "valid_left_out" else "compete"
        among = (
            f"all items{only} the user has not trained on (when testing, validation items {valid})"
            if self.candidates == "full"
            else f"{self.n_sampled} items{only} the user never interacted with (drawn once, seed {self.seed})"
        )
        ties = (
            f"equal scores are ordered at random (seed {self.seed})"
            if self.ties == "random"
            else "equal scores count against the held-out item"
        )
        scores = "" if self.scores == "raw" else "scores are float32 probabilities, which can saturate and tie; "
        cuts = " and ".join(str(k) for k in self.k)
        return f"Each user's held-out items are ranked among {among} and cut at {cuts}{unseen}; {scores}{ties}"


HONEST = Protocol()
"""Full ranking, nothing of the held-out items known to training, last round."""

PAPER = Protocol(
    candidates="sampled",
    n_sampled=99,
    negatives="all",
    scores="probability",
    ties="pessimistic",
    select="best_valid",
)
"""As the released code of PFedRec (IJCAI 2023) and GPFedRec (KDD 2024) evaluates: for their tables only."""
