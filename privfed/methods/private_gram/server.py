"""The server of `private-gram`: two queries to one sampled cohort, then post-processing of their sums.

Each block's weight makes a unit vector as long as its share of the clip norm lets it be, so a sum comes back in units
of unit vectors, with noise of standard deviation 1 / (mu sqrt(share)).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.memory import refuse_beyond_memory
from privfed.contracts import Block, NoisySums, Schema
from privfed.data.item_features import item_features
from privfed.federation import SERVER, Cohort, Federation, Message, Purpose, Streams
from privfed.methods.method import PlannedQuery, PublicInfo
from privfed.methods.private_gram.config import HeadShown, PrivateGramConfig, PrivateGramConstants
from privfed.methods.private_gram.donations import Donations
from privfed.methods.private_gram.model.choosing import Choice, ThinnedCopies, choose
from privfed.methods.private_gram.model.content import Content
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram
from privfed.methods.private_gram.model.item_kernel import ItemKernel, ItemKernelError
from privfed.methods.private_gram.model.pooling import STANDS_OUT, NoisySum, OpenMean, Pooled, judged, pooled_pairs
from privfed.methods.private_gram.queries import AGAIN, GRAM
from privfed.methods.shared.popular_head import HEAD, ORDER, POPULARITY, SCALE, SHARES, WEIGHTS, PopularHead, unit_block
from privfed.updates import packed_size, unpacked

BEYOND, BEYOND_SHARES, BEYOND_WEIGHTS = "beyond", "beyond_shares", "beyond_weights"
_CENTRE = "centre"
_BYTES_PER_PAIR = 20
"""Half a matrix of the sum and the matrices of its estimate and a factor of it in float64, and weights in float32."""
_FLOOR = 0.5
_SEED_WORDS = 4
_CONTENT_ALONE = 0.5
"""How far content is believed of items about which histories say nothing."""
_SURE, _RIDGE = 5e4, 4.0
"""n mu from which weights may take the form of EASE, and their ridge in white noises."""
_CAUTION_OF_POPULARITY, _CAUTION_OF_PAIRS = 2.0, 8.0
"""How many times more than noise of the same size donors' errors of sampling count (`model/pooling`)."""


class NoFeaturesError(ValueError):
    """Items outside the head were to be ranked by content, and there is none."""


class PrivateGramServer:
    """Runs its two queries in the first round.

    Attributes:
        constants: of the run.
        schemas: of the two queries, in order, the second as large as it can be; without a Gram matrix there is
            only the first.
        schema: of the last query.
        tensors: all that devices download: head, popularity on the head, damping, weights, and the order of all items;
            for items outside the head, where content ranks them, which those are, their popularity and weights.
        decisions: what was decided by what had been released; empty before the round.

    Raises:
        NoFeaturesError: content is to rank items outside the head, and no feature of an item is known.
    """

    def __init__(self, config: PrivateGramConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, self.items = config, public_info.n_items
        self._seed = streams.words(Purpose.THINNING, 0, 0, [SERVER], _SEED_WORDS)[0].tolist()
        self.sums = public_info.sums or NoisySums(public_info.n_users)
        self.features = item_features(public_info.item_info) if config.metadata else None
        self.kernel = self._likeness(public_info)
        if config.beyond_head == "content" and not self.described:
            raise NoFeaturesError(
                "private-gram is to rank items outside the head by content, and the data name no genre or year of any "
                "item: set beyond_head to popularity, describe the items, or give an item_kernel"
            )
        self._donations = None if public_info.donors is None else Donations(public_info.donors)
        self.constants = PrivateGramConstants.from_config(
            config,
            self.sums,
            public_info.n_items,
            content=self.described,
            donors=0 if self._donations is None else self._donations.people,
        )
        self.schemas = self._schemas()
        self.schema = self.schemas[-1]
        side = self.constants.head
        refuse_beyond_memory(
            _BYTES_PER_PAIR * side**2,
            f"private-gram with a head of {side:,} items and matrices of all their pairs",
            "set a smaller head",
        )
        self.queried = torch.tensor(False)  # noqa: FBT003 (a tensor's value)
        self.decisions: dict[str, float] = {}
        self._centre = torch.full((side,), 1 / max(side, 1))
        self.tensors = {
            HEAD: torch.arange(side),
            SHARES: self._centre,
            SCALE: torch.ones(side),
            WEIGHTS: torch.zeros(side, side),
            ORDER: torch.zeros(public_info.n_items),
            **_nothing_beyond(side),
        }

    def _likeness(self, public_info: PublicInfo) -> ItemKernel | None:
        """The kernel that was brought along."""
        path, columns = self.config.item_kernel, self.config.item_columns
        if path is not None and columns:
            raise ItemKernelError(
                f"item_kernel={path!r} and item_columns={list(columns)} both describe the items: give one of them"
            )
        if path is not None:
            return ItemKernel.read(Path(path), public_info.n_items)
        return ItemKernel.from_columns(public_info.item_info, columns) if columns else None

    @property
    def described(self) -> bool:
        """Whether anything public is known of the items."""
        return self.features is not None or self.kernel is not None

    def round(self, federation: Federation, t: int) -> None:
        """Collect popularity and then the Gram matrix of its head; later rounds have no query."""
        if self.queried:
            return
        cohort = federation.sample_cohort(t)
        popularity = self._popularity(federation, cohort, self.schemas[0])
        deviation = self._deviation(self.schemas[0], POPULARITY)
        shown = HeadShown.from_popularity(popularity, cohort.expected, deviation)
        self.decisions = {"mean root of history lengths": shown.root_length, "items above noise": shown.standing_out}
        few = len(self.schemas) > 1 and shown.few(self.config)
        if few:
            popularity = self._more_exact(federation, cohort, popularity)
            deviation = self.sums.deviation / self.sums.unit
        popularity, deviation = self._with_donors(popularity, cohort, deviation)
        if few or len(self.schemas) == 1:
            self._rank(popularity, deviation, 0)
        else:
            self._relate(federation, cohort, popularity, deviation, short=shown.short(self.config))
        self.decisions["items on the head"] = len(self.tensors[HEAD])
        self.queried = torch.tensor(True)  # noqa: FBT003 (a tensor's value)

    def program(self) -> Sequence[PlannedQuery]:
        """Both queries, the second as large as it can be and with the message that it sends down."""
        messages = (Message({}), self._relation())
        return [
            PlannedQuery(schema, message.bytes_per_client(), message)
            for schema, message in zip(self.schemas, messages, strict=False)
        ]

    def public(self) -> Message:
        """Everything that a device needs to recommend."""
        return Message(self.tensors)

    def state(self) -> dict[str, Tensor]:
        """The tensors that devices download, what they centred by, whether the queries have run, and decisions."""
        decided = {f"decided.{name}": torch.tensor(float(value)) for name, value in self.decisions.items()}
        return {**self.tensors, "queried": self.queried, _CENTRE: self._centre.clone(), **decided}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.tensors = {name: state[name] for name in self.tensors}
        self.decisions = {
            name.removeprefix("decided."): float(v) for name, v in state.items() if name.startswith("decided.")
        }
        self.queried, self._centre = state["queried"], state[_CENTRE]

    def _schemas(self) -> list[Schema]:
        share, side = self.constants.share, self.constants.head
        popularity: Schema = {POPULARITY: self._block((self.items, 1), share)}
        if not side:
            return [popularity]
        return [popularity, self._gram_schema(diagonal=self.config.histories != "short")]

    def _gram_schema(self, *, diagonal: bool) -> Schema:
        size = packed_size(self.constants.head, diagonal=diagonal)
        rest, again = 1 - self.constants.share, self.constants.again
        schema = {GRAM: self._block((size,), rest * (1 - again))}
        if again:
            schema[AGAIN] = self._block((self.constants.head, 1), rest * again)
        return schema

    def _block(self, shape: tuple[int, ...], share: float) -> Block:
        return unit_block(shape, self.sums.unit, share)

    def _deviation(self, schema: Schema, name: str) -> float:
        """Standard deviation of the noise on a released sum of a block."""
        return self.sums.deviation / schema[name].weight

    def _popularity(self, federation: Federation, cohort: Cohort, schema: Schema) -> Float64[Tensor, " items"]:
        return federation.aggregate(POPULARITY, cohort, Message({}), schema).sums[POPULARITY][:, 0].double()

    def _more_exact(
        self, federation: Federation, cohort: Cohort, popularity: Float64[Tensor, " items"]
    ) -> Float64[Tensor, " items"]:
        """Popularity from all of the budget: the mean of two sums by their shares, which are inverse variances."""
        share = self.constants.share
        again = self._popularity(federation, cohort, {POPULARITY: self._block((self.items, 1), 1 - share)})
        return share * popularity + (1 - share) * again

    def _with_donors(
        self, popularity: Float64[Tensor, " items"], cohort: Cohort, deviation: float
    ) -> tuple[Float64[Tensor, " items"], float]:
        """Released popularity and the standard deviation of its error, with what donors know of it."""
        if self._donations is None:
            return popularity, deviation
        released = NoisySum(on_host(popularity), cohort.expected, deviation**2, self.items)
        self.decisions["donors"] = self._donations.people
        donated = self._donations.popularity()
        # Whoever has more items has a smaller entry for each: what counts is which items, so lengths are made alike.
        longer = float(popularity.sum()) / max(cohort.expected * float(donated.mean.sum()), 1.0)
        check, weight = self.config.check_donors, self.config.donor_weight
        found = released.pooled(donated.scaled(max(longer, 0.0)), _CAUTION_OF_POPULARITY, check=check, weight=weight)
        self._note(found, POPULARITY)
        return placed(found.sum.total), math.sqrt(found.sum.variance)

    def _note(self, found: Pooled, what: str) -> None:
        """Decide in public: how much donors count."""
        self.decisions[f"weight of donors in {what}"] = found.weight
        self.decisions[f"standard deviations by which donors differ in {what}"] = found.seen

    def _rank(self, sums: Float64[Tensor, " items"], deviation: float, side: int) -> PopularHead:
        """Order all items by noisy popularity and cut the head."""
        head = PopularHead.from_popularity(sums, deviation, side)
        shares = head.popularity / head.popularity.sum()
        self._centre = shares.float()
        self.tensors |= {
            ORDER: head.order,
            HEAD: head.items,
            SHARES: self._centre,
            SCALE: _damped(shares, shares, self.constants.damping).float(),
            WEIGHTS: torch.zeros(side, side),
            **_nothing_beyond(side),
        }
        return head

    def _relation(self) -> Message:
        """The message with which a device forms its part of the Gram matrix."""
        return Message({HEAD: self.tensors[HEAD], SHARES: self._centre, SCALE: self.tensors[SCALE]})

    def _relate(
        self,
        federation: Federation,
        cohort: Cohort,
        popularity: Float64[Tensor, " items"],
        deviation: float,
        *,
        short: bool,
    ) -> None:
        """Ask for the Gram matrix and learn the weights from it."""
        side = self.constants.head
        head = self._rank(popularity, deviation, side)
        schema, message = self._gram_schema(diagonal=not short), self._relation()
        gram, again = self._gram(federation, cohort, message, schema, diagonal=not short)
        if again is not None and self.config.donor_weight != 1:
            head = self._known_twice(head, popularity, deviation, again, self._deviation(schema, AGAIN))
        evidence = NoisyGram(
            gram=on_host(gram),
            popularity=on_host(head.popularity),
            clients=self._people(gram, cohort),
            deviation=self._deviation(schema, GRAM),
            content=self._content(head.items, head.items),
            diagonal=not short,
            max_pairs=self.config.rank,
        )
        copies = self._copies(evidence)
        if self._donations is not None:
            donated = self._donations.gram(message, diagonal=not short)
            evidence, copies = self._joined(evidence, copies, donated)
        recipe = self._recipe(evidence, copies, short=short)
        if recipe is None:
            return
        self.tensors[WEIGHTS] = placed(evidence.weights(recipe)).float()
        if self.config.beyond_head == "content":
            self._reach(evidence, recipe, head, popularity)

    def _gram(
        self, federation: Federation, cohort: Cohort, message: Message, schema: Schema, *, diagonal: bool
    ) -> tuple[Float64[Tensor, "side side"], Float64[Tensor, " side"] | None]:
        """The released Gram matrix, and the popularity of the head beside it where that was asked for."""
        sums = federation.aggregate(GRAM, cohort, message, schema).sums
        again = sums[AGAIN][:, 0].double() if AGAIN in schema else None
        return unpacked(sums[GRAM], self.constants.head, diagonal=diagonal), again

    def _known_twice(
        self,
        head: PopularHead,
        popularity: Float64[Tensor, " items"],
        deviation: float,
        again: Float64[Tensor, " side"],
        deviation_again: float,
    ) -> PopularHead:
        """The same items, whose popularity two sums say together: the tensors that devices rank by follow."""
        known = head.pooled(popularity, deviation, again, deviation_again)
        self.tensors |= {SHARES: (known.popularity / known.popularity.sum()).float(), ORDER: known.order}
        return known

    def _people(self, gram: Float64[Tensor, "side side"], cohort: Cohort) -> float:  # noqa: ARG002 (all are expected)
        """How many histories are in it."""
        return cohort.expected

    def _content(self, rows: Int64[Tensor, " j"], items: Int64[Tensor, " k"]) -> Content | None:
        """Kernels between some items and others; None where nothing is known of items."""
        ones, others = on_host(rows), on_host(items)
        known = None
        if self.features is not None:
            known = Content.between(self.features, ones, others, self.config.year_scale)
        if self.kernel is None:
            return known
        kernel = self.kernel.between(ones, others)
        return Content(lambda: (kernel,), (1.0,)) if known is None else known.joined(kernel)

    def _joined(
        self, evidence: NoisyGram, copies: ThinnedCopies | None, donated: OpenMean
    ) -> tuple[NoisyGram, ThinnedCopies | None]:
        """Evidence and the copy to learn from, with what donors contribute; who judges are the others alone."""
        caution, weight = _CAUTION_OF_PAIRS, self.config.donor_weight
        joined, found = pooled_pairs(evidence, donated, caution, check=False, weight=weight)
        if self.config.check_donors and weight is None and found.seen > STANDS_OUT:
            joined, lessened = pooled_pairs(evidence, donated, caution, check=True)
            chosen, start = lessened.weight, self._start(evidence)
            if copies is not None:
                chosen = judged(copies, donated, start, caution, (found.weight, lessened.weight, 0.0))
            joined, found = pooled_pairs(evidence, donated, caution, check=False, weight=chosen)
        self._note(found, "pairs")
        if copies is None:
            return joined, None
        learning, _ = pooled_pairs(copies.learning, donated, caution, check=False, weight=found.weight)
        return joined, replace(copies, learning=learning)

    def _start(self, evidence: NoisyGram) -> EstimatorSettings:
        """Settings of the weights by the rule."""
        described = evidence.content is not None
        return EstimatorSettings(described, self.constants.smoothing if described else 0.0, self.config.rank)

    def _recipe(self, evidence: NoisyGram, copies: ThinnedCopies | None, *, short: bool) -> EstimatorSettings | None:
        """Settings of the weights: as configured, or chosen by thinning the release (`model/choosing`).

        None where nothing is predicted beyond popularity, which then stands alone.
        """
        recipe, pairs = self._start(evidence), self.config.threshold if short else None
        sure = evidence.diagonal and evidence.clients * self.sums.mu >= _SURE
        ridge = _RIDGE if sure and self.config.select else None
        if copies is None:
            return replace(recipe, threshold=pairs, ridge=ridge)
        choice = choose(copies, recipe, pairs=pairs, ridge=ridge)
        self.decisions |= _words(choice)
        return choice.settings if choice.gain > 0 else None

    def _copies(self, evidence: NoisyGram) -> ThinnedCopies | None:
        """Thinned copies of the release, by noise that need not be secret; None where nothing is chosen by them."""
        if not self.config.select or evidence.deviation == 0:
            return None
        side, diagonal = len(evidence.gram), evidence.diagonal
        unit = np.random.default_rng(self._seed).normal(size=packed_size(side, diagonal=diagonal))
        noise = on_host(unpacked(placed(unit * evidence.deviation), side, diagonal=diagonal))
        return ThinnedCopies.from_evidence(evidence, noise)

    def _reach(
        self, evidence: NoisyGram, recipe: EstimatorSettings, head: PopularHead, popularity: Float64[Tensor, " items"]
    ) -> None:
        """Weights of the items outside the head, from content."""
        beyond = head.order.argsort(descending=True, stable=True)[len(head.items) :]
        across = self._content(beyond, head.items)
        if across is None:
            return
        least = float(head.popularity.min())
        shares = popularity[beyond].clamp(_FLOOR, max(least, _FLOOR)) / head.popularity.sum()
        scale = _damped(shares, self.tensors[SHARES].double(), self.constants.damping)
        weights = placed(evidence.reaching(recipe, across)) * _CONTENT_ALONE / scale.unsqueeze(1)
        self.tensors |= {BEYOND: beyond, BEYOND_SHARES: shares.float(), BEYOND_WEIGHTS: weights.float()}


def _damped(shares: Float64[Tensor, " k"], head: Float64[Tensor, " side"], damping: float) -> Float64[Tensor, " k"]:
    """Weight of an item in a history: (its popularity over the head's mean)^-damping."""
    return (shares / head.mean()).pow(-damping)


def _nothing_beyond(side: int) -> dict[str, Tensor]:
    return {
        BEYOND: torch.empty(0, dtype=torch.int64),
        BEYOND_SHARES: torch.empty(0),
        BEYOND_WEIGHTS: torch.empty(0, side),
    }


def _words(choice: Choice) -> dict[str, float]:
    """A choice in the words of a report."""
    recipe = choice.settings
    return {
        "variants compared": choice.tried,
        "content is used": float(recipe.content),
        "smoothing": recipe.smoothing,
        "share of the head that is used": recipe.kept,
        "threshold of single pairs": recipe.threshold or 0.0,
        "weight of what lies below the noise": recipe.below,
        "predicted share of histories beyond popularity": choice.gain,
        **({} if recipe.ridge is None else {"form of EASE": 1.0}),
    }
