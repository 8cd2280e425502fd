"""What an adversary saw, what it knew beforehand, and what it tries to find out.

Every attack in this package is a pure function of a :class:`ServerView` (what passed the point in the system
where the adversary listens), a :class:`ScoreView` (what a user's device shows) or an
:class:`attacks.support_view.SupportView` (which rows clients send), and a :class:`Knowledge` (what the adversary knew
before). :class:`Targets` holds the truth and is seen only by the measurement, never by an attack.

The two games on training items follow the membership game of Shokri et al. (S&P 2017) in its recommender form (Yuan
et al., WWW 2023): "did user u train on item i?". Members are natural, not coin-flipped, so a score here mixes leakage
with popularity (and, for held-out items, with time); read it beside the popularity guesser and never convert
it to an epsilon. Two more games ask about the examinations in a support, where purchases are public.
"""

from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Float64

Scores: TypeAlias = Float64[np.ndarray, "users items"]
"""One number per (user, item); higher means "more likely that the user trained on the item"."""

ALL_ITEMS = "all items"
TOUCHED_ITEMS = "touched items"

PerUser: TypeAlias = Float64[np.ndarray, "users"]
"""One number per audited user."""

UserMask: TypeAlias = Bool[np.ndarray, "users"]
"""A choice of audited users."""

UNTOUCHED_TOLERANCE = 1e-4
"""A row is untouched below this share of the user's largest row; float32 rounding stays well under it."""

USERS_PER_CHUNK = 64
"""Users handled together, so that temporary copies of their uploads stay within tens of megabytes."""


class ViewError(ValueError):
    """A view, some knowledge or a set of targets does not have the shape or the values it must have."""


@runtime_checkable
class Seen(Protocol):
    """Any view: it is about some audited users and one catalogue."""

    @property
    def n_users(self) -> int:
        """Number of audited users."""

    @property
    def n_items(self) -> int:
        """Catalogue size."""


@dataclass(frozen=True, eq=False)
class ServerView:
    """The item-shaped uploads of one round, as they passed the adversary's listening point.

    An upload is what local training changed, local minus global. A user who did not take part has only zeros.

    Attributes:
        round: Round number, from 0.
        uploads: What each audited user sent about each item on the way out of the model: a row of the item
            table, or of the last layer's weights.
        pull: Direction the server itself put into each user's local training, known to it (GPFedRec: the
            user's own regularisation target minus the global table), or None where there is none. An upload
            contains an unknown multiple of it, the same for all rows of a user.
        inputs: The same for each item on the way in: its row of the first layer's weights, of a model that
            reads the user's history (autoencoders); None where there is none.
        bias: The last layer's bias, one number per item; None where there is none.

    Raises:
        ViewError: If the arrays are not float32 of equal users and items, uploads and inputs with a width,
        the pull as wide as the uploads and the bias without one, or hold NaN or infinity.
    """

    round: int
    uploads: Float32[np.ndarray, "users items width"]
    pull: Float32[np.ndarray, "users items width"] | None = None
    inputs: Float32[np.ndarray, "users items input_width"] | None = None
    bias: Float32[np.ndarray, "users items"] | None = None

    def __post_init__(self) -> None:
        rows = {"uploads": self.uploads, "pull": self.pull, "inputs": self.inputs}
        for name, array in rows.items():
            if array is not None:
                _check_block(f"ServerView.{name}", array, "[users, items, width]", self.round)
        if self.bias is not None:
            _check_block("ServerView.bias", self.bias, "[users, items]", self.round)
        if self.pull is not None and self.pull.shape != self.uploads.shape:
            raise ViewError(
                f"ServerView.pull has shape {self.pull.shape} but uploads has {self.uploads.shape}; "
                "pass one pull row for every upload row."
            )
        for name, array in (("inputs", self.inputs), ("bias", self.bias)):
            if array is not None and array.shape[:2] != self.uploads.shape[:2]:
                raise ViewError(
                    f"ServerView.{name} has shape {array.shape} but uploads has {self.uploads.shape}; pass the "
                    "same users and items in both."
                )

    @property
    def n_users(self) -> int:
        """Number of audited users."""
        return len(self.uploads)

    @property
    def n_items(self) -> int:
        """Catalogue size."""
        return len(self.uploads[0])

    @property
    def width(self) -> int:
        """Length of one item row."""
        return len(self.uploads[0, 0])

    def chunks(self) -> list[slice]:
        """User slices that cover the view, small enough to copy."""
        return [slice(at, at + USERS_PER_CHUNK) for at in range(0, self.n_users, USERS_PER_CHUNK)]

    def present(self) -> UserMask:
        """Users who sent anything in this round."""
        blocks = [block for block in (self.uploads, self.inputs, self.bias) if block is not None]
        sent: UserMask = np.any([block.reshape(self.n_users, -1).any(axis=1) for block in blocks], axis=0)
        return sent


@dataclass(frozen=True, eq=False)
class ScoreView:
    """What somebody sees who looks at users' own recommendations: a score for every item.

    Attributes:
        round: Rounds trained before, less one.
        scores: How each audited user's device ranks the catalogue, training items included.

    Raises:
        ViewError: If the scores are not float32 of [users, items] shape, or hold NaN or infinity.
    """

    round: int
    scores: Float32[np.ndarray, "users items"]

    def __post_init__(self) -> None:
        _check_block("ScoreView.scores", self.scores, "[users, items]", self.round)

    @property
    def n_users(self) -> int:
        """Number of audited users."""
        return len(self.scores)

    @property
    def n_items(self) -> int:
        """Catalogue size."""
        return len(self.scores[0])


class Recipe(Protocol):
    """Local training as an adversary can repeat it: it knows the code, its settings and the model that it sent.

    It does not know a user's private half, so replays start from one that a newcomer would have.

    Implement it beside the training code: `replay` fills a guessed history into the device's own training step and
    hands back what would have been sent, in the same blocks as the view that is attacked. Attacks that use it stay pure
    functions of a view.
    """

    def replay(
        self,
        round: int,
        positives: Bool[np.ndarray, "users items"],
        candidates: Bool[np.ndarray, "users items"],
        world: int,
    ) -> ServerView:
        """What the users of the view would have sent in `round`, had they trained on `positives`.

        Args:
            round: A round of a view; training starts from the model that was sent in it.
            positives: Guessed histories. A user without any sends zeros.
            candidates: Items that sampled negatives may come from, positives left out.
            world: Number of the replay; equal numbers give equal randomness, other numbers another one.
        """

    def public_scores(self, view: ServerView) -> Scores:
        """Scores of all items by the model that each user sent, with a newcomer's private half.

        Args:
            view: Uploads. A user with nothing but zeros sent nothing, so its scores are those of the model that the
                server had sent.
        """


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the adversary knows before it looks at anything.

    Attributes:
        popularity: How often each item was interacted with, on any scale (counts, shares); higher is more
            popular.
        recipe: Local training as the adversary can repeat it; None where it cannot.
        colluding: Users of the view whose histories the adversary has; None where nobody helps it.
        histories: What these users trained on; the rows of all others are ignored.

    Raises:
        ViewError: If popularity is not one finite float64 number per item, or only one of `colluding` and `histories`
        is given, or their shapes do not fit each other and the popularity.
    """

    popularity: Float64[np.ndarray, "items"]
    recipe: Recipe | None = None
    colluding: UserMask | None = None
    histories: Bool[np.ndarray, "users items"] | None = None

    def __post_init__(self) -> None:
        p = self.popularity
        if p.dtype != np.float64 or p.ndim != 1 or not np.isfinite(p).all():
            raise ViewError(
                f"Knowledge.popularity is {p.dtype} of shape {p.shape}; pass one finite float64 number per item."
            )
        if (self.colluding is None) != (self.histories is None):
            raise ViewError(
                "Knowledge got only one of colluding and histories; say who helps and what they trained on, or neither."
            )
        if self.colluding is not None and self.histories is not None:
            who, what = self.colluding, self.histories
            if who.dtype != bool or what.dtype != bool or what.shape != (*who.shape, len(p)):
                raise ViewError(
                    f"Knowledge got colluding {who.dtype} {who.shape} and histories {what.dtype} {what.shape}; pass "
                    f"boolean masks of shapes [users] and [users, {len(p)} items]."
                )

    def popularity_of(self, view: Seen) -> Float64[np.ndarray, "items"]:
        """The popularity, once it is known to be about the catalogue of the view.

        Raises:
            ViewError: If it covers another number of items.
        """
        if len(self.popularity) != view.n_items:
            raise ViewError(
                f"Knowledge.popularity has {len(self.popularity)} items but the view has {view.n_items}; "
                "pass the popularity of the catalogue that was trained on."
            )
        return self.popularity

    def recipe_for(self, attack: str) -> Recipe:
        """The recipe, for an attack that cannot do without.

        Args:
            attack: Its name.

        Raises:
            ViewError: If there is none.
        """
        if self.recipe is None:
            raise ViewError(f"The {attack} attack needs Knowledge.recipe, which is None; pass how clients train.")
        return self.recipe

    def helpers_of(self, view: Seen, attack: str) -> tuple[UserMask, Bool[np.ndarray, "users items"]]:
        """Who helps the adversary and what they trained on, for an attack that cannot do without.

        Args:
            view: What the attack looks at.
            attack: Its name.

        Raises:
            ViewError: If nobody helps, or the masks are about other users than the view.
        """
        if self.colluding is None or self.histories is None or not self.colluding.any():
            raise ViewError(
                f"The {attack} attack needs Knowledge.colluding and Knowledge.histories of at least one user; pass the "
                "histories of those who help."
            )
        if len(self.colluding) != view.n_users:
            raise ViewError(
                f"Knowledge.colluding is about {len(self.colluding)} users but the view about {view.n_users}; pass "
                "both for the same audited users."
            )
        return self.colluding, self.histories


@dataclass(frozen=True, eq=False)
class Support:
    """Which rows each user's local training touched, as far as the view shows it.

    Attributes:
        rows: True where the upload differs from the untouched pattern (zero after the pull is taken out).
        told: Users with at least one untouched row. For the others noise lies on every row (or they really
            touched every item), so the support cannot be told and `rows` is all True.
    """

    rows: Bool[np.ndarray, "users items"]
    told: UserMask


@dataclass(frozen=True, eq=False)
class Targets:
    """The question asked and its true answers.

    Attributes:
        members: True where the user trained on the item.
        candidates: True where the pair is scored at all; members outside the candidates are ignored.
        game: The question in words.
        scope: Which items take part, :data:`ALL_ITEMS` or :data:`TOUCHED_ITEMS`.
        note: Anything a reader must know about this scope, or "".
        membership: "natural" where the members are people's real items, "randomised" where a fair coin of the
            experimenter decided which of them were trained on.

    Raises:
        ViewError: If the masks are not boolean of one [users, items] shape.
    """

    members: Bool[np.ndarray, "users items"]
    candidates: Bool[np.ndarray, "users items"]
    game: str = "custom"
    scope: str = ALL_ITEMS
    note: str = ""
    membership: Literal["natural", "randomised"] = "natural"

    def __post_init__(self) -> None:
        same = self.members.shape == self.candidates.shape
        if not same or self.members.ndim != 2 or self.members.dtype != bool or self.candidates.dtype != bool:
            raise ViewError(
                f"Targets got members {self.members.dtype} {self.members.shape} and candidates "
                f"{self.candidates.dtype} {self.candidates.shape}; pass two boolean masks of one [users, "
                "items] shape."
            )

    @classmethod
    def trained_vs_never_seen(
        cls, train: Bool[np.ndarray, "users items"], seen: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Game 1: training items against items the user never interacted with in any split.

        Args:
            train: Items each user trained on.
            seen: Items each user has in any split (train, valid or test). Held-out items are no candidates.
        """
        return cls(members=train, candidates=train | ~seen, game="trained vs never seen")

    @classmethod
    def trained_vs_held_out(
        cls, train: Bool[np.ndarray, "users items"], held_out: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Game 2: training items against held-out items of the same user.

        Both sides are to the user's taste, so popularity and taste help less; what is left is memory of
        training (and, with a split by time, whatever time changes).

        Args:
            train: Items each user trained on.
            held_out: The user's validation and test items.
        """
        return cls(members=train, candidates=train | (held_out & ~train), game="trained vs held-out of the same user")

    @classmethod
    def coin_decided(cls, kept: Bool[np.ndarray, "users items"], dropped: Bool[np.ndarray, "users items"]) -> "Targets":
        """Game 3: of interactions put to a fair coin before training, those it kept against those it dropped.

        Popularity, taste and time are the same on both sides, so only training tells them apart. This is the game
        that epsilon bounds.

        Args:
            kept: Interactions that the coin left in training.
            dropped: Interactions that it took out.
        """
        return cls(members=kept, candidates=kept | dropped, game="coin decided", membership="randomised")

    @classmethod
    def examined_vs_rest(
        cls, examined: Bool[np.ndarray, "users items"], public: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Examinations against the rest of the catalogue. Purchases are public, so they are no candidates.

        Args:
            examined: Items each user examined.
            public: Items each user bought (in training).
        """
        return cls(members=examined, candidates=~public, game="examined vs rest")

    @classmethod
    def examined_vs_cover(
        cls,
        examined: Bool[np.ndarray, "users items"],
        sent: Bool[np.ndarray, "users items"],
        public: Bool[np.ndarray, "users items"],
    ) -> "Targets":
        """Examinations against the cover items among the rows that a client sends.

        A client without cover has nothing to tell apart and is not measured.

        Args:
            examined: Items each user examined.
            sent: Rows each user sends.
            public: Items each user bought (in training).
        """
        return cls(members=examined & sent, candidates=sent & ~public, game="examined vs cover", scope=TOUCHED_ITEMS)

    def touched(self, support: Support) -> "Targets":
        """The same game, asked only of items whose row the upload touched.

        This separates "which rows moved" from "which of the moved rows are real": a client's own sampled
        negatives are the non-members that are left.
        """
        hidden = int((~support.told).sum())
        note = (
            f"every row differs from zero for {hidden} of {len(support.told)} users, so their touched rows "
            "cannot be told and all items count as touched"
            if hidden
            else ""
        )
        return replace(self, candidates=self.candidates & support.rows, scope=TOUCHED_ITEMS, note=note)

    def without(self, users: UserMask) -> "Targets":
        """The same game, asked only of the other users: those who told the adversary are no success of an attack.

        Args:
            users: To leave out, for example :attr:`Knowledge.colluding`.
        """
        return replace(self, candidates=self.candidates & ~users[:, None])


def _check_block(name: str, array: Float32[np.ndarray, "users items ..."], shape: str, number: int) -> None:
    """One float32 array with a value for every user and item."""
    if array.dtype != np.float32 or array.ndim != shape.count(",") + 1 or 0 in array.shape:
        raise ViewError(
            f"{name} is {array.dtype} of shape {array.shape}; pass a non-empty float32 array of shape {shape}."
        )
    if not np.isfinite(array.sum(dtype=np.float64)):
        raise ViewError(
            f"{name} of round {number} holds NaN or infinity; leave out the users whose model broke, or pass zeros "
            "for users who did not take part."
        )


def pull_share(view: ServerView) -> Float32[np.ndarray, "users"]:
    """How much of the server's own pull each upload contains.

    An untouched row equals share * pull exactly, with one share per user (GPFedRec: 1 - (1 - a)^steps). Least
    absolute deviations over rows, that is the weighted median of the per-row least-squares shares with
    weights |pull row|^2, finds it even though touched rows disagree, and is exact where more than half of the
    weight is untouched and there is no noise. Zero where there is no pull.
    """
    share = np.zeros(view.n_users, dtype=np.float32)
    if view.pull is None:
        return share
    for chunk in view.chunks():
        pull = view.pull[chunk]
        weight = np.einsum("uiw,uiw->ui", pull, pull)
        product = np.einsum("uiw,uiw->ui", view.uploads[chunk], pull)
        ratio = np.divide(product, weight, out=np.zeros_like(weight), where=weight > 0)
        order = ratio.argsort(axis=1)
        mass = np.take_along_axis(weight, order, axis=1).cumsum(axis=1, dtype=np.float64)
        middle = (mass < mass[:, -1:] / 2).sum(axis=1).clip(max=view.n_items - 1)
        rows = np.arange(len(ratio))
        share[chunk] = ratio[rows, order[rows, middle]]
    return share


def residual(
    view: ServerView, share: Float32[np.ndarray, "users"], chunk: slice
) -> Float32[np.ndarray, "chunk items width"]:
    """Uploads of a slice of users with the server's own pull taken out."""
    if view.pull is None:
        return view.uploads[chunk]
    left: Float32[np.ndarray, "chunk items width"] = view.uploads[chunk] - share[chunk, None, None] * view.pull[chunk]
    return left


def row_norms(view: ServerView) -> Float32[np.ndarray, "users items"]:
    """Euclidean norm of each upload row after the pull is taken out."""
    share = pull_share(view)
    norms = np.empty((view.n_users, view.n_items), dtype=np.float32)
    for chunk in view.chunks():
        part = residual(view, share, chunk)
        norms[chunk] = np.sqrt(np.einsum("uiw,uiw->ui", part, part))
    return norms


def support(view: ServerView) -> Support:
    """Read off which rows were touched; see :class:`Support`."""
    norms = row_norms(view)
    rows = norms > UNTOUCHED_TOLERANCE * norms.max(axis=1, keepdims=True)
    return Support(rows=rows, told=~rows.all(axis=1))
