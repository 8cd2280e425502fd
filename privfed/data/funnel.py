"""Generated views, carts and purchases, from a seed. No person is behind any of it.

Views are drawn by popularity and taste (`privfed.data.population`). A view becomes a cart, and a cart a
purchase, where `keenness * liking + logistic noise` is among the highest share of its step: a logistic model
whose intercept makes the share come out exactly. The rest of the purchases have no view at all, as in real
logs (in JD's, one training purchase in five): they are drawn among the items that the user did not view, by
popularity, taste and keenness. So views and purchases carry the same taste, and both help to learn it.

Every user has one time line. Of one pair the view comes before the cart and the cart before the purchase;
no two rows of a user have the same second.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64

from privfed.data.interactions import Duplicates, Interactions, build
from privfed.data.people import demographics
from privfed.data.population import SyntheticPopulation, activity, choose, moments
from privfed.data.synthetic_spec import TERMS, FunnelSpec

_LAG = 0.03
"""Mean share of a user's time line that lies between two steps of one pair."""


def generate_funnel(spec: FunnelSpec, duplicates: Duplicates = "drop", min_per_user: int = 1) -> Interactions:
    """Generate the data set that `spec` describes; a row's position in the "file" is its position in time.

    Its behaviours are view, cart and buy.
    """
    rng = np.random.default_rng(spec.seed)
    population = SyntheticPopulation.sample(spec, rng)
    counts = activity(spec, rng)
    viewed, liking = _views(population, counts, rng)
    carted = _keenest(liking, spec.cart_share, spec.keenness, rng)
    bought = carted.copy()
    bought[carted] = _keenest(liking[carted], spec.buy_share, spec.keenness, rng)
    odds = spec.without_view / (1 - spec.without_view)
    unseen = _unseen(population, spec, viewed, round(odds * bought.sum()), rng)

    looked = rng.random(len(viewed))
    put = looked + rng.exponential(_LAG, len(viewed))
    paid = put + rng.exponential(_LAG, len(viewed))
    pairs = [viewed, viewed[carted], viewed[bought], unseen]
    user, item = np.divmod(np.concatenate(pairs), spec.n_items)
    place = np.concatenate([looked, put[carted], paid[bought], rng.random(len(unseen))])
    behaviour = np.repeat(["view", "cart", "buy", "buy"], [len(part) for part in pairs])
    line = np.lexsort((place, user))
    seconds = np.empty(len(line), dtype=np.int64)
    seconds[line] = moments(user[line], spec.n_users, rng, min_pause=1)
    rows = np.argsort(seconds, kind="stable")
    return build(
        spec.name,
        user[rows] + 1,
        item[rows] + 1,
        timestamp=seconds[rows],
        behaviour=behaviour[rows],
        catalogue=np.arange(1, spec.n_items + 1),
        attributes=demographics(population.people),
        item_info=population.titles(),
        duplicates=duplicates,
        min_per_user=min_per_user,
        synthetic=True,
        terms=TERMS,
    )


def _views(
    population: SyntheticPopulation, counts: Int64[np.ndarray, "users"], rng: np.random.Generator
) -> tuple[Int64[np.ndarray, "views"], Float64[np.ndarray, "views"]]:
    """Viewed pairs as user * items + item, by user, and how much the user likes each."""
    pairs, likings = [], []
    for block, liking in population.blocks():
        chosen = choose(population.logit(liking), counts[block], rng)
        pairs.append(np.flatnonzero(chosen) + block.start * population.spec.n_items)
        likings.append(liking[chosen])
    return np.concatenate(pairs), np.concatenate(likings)


def _keenest(
    liking: Float64[np.ndarray, "pairs"], share: float, keenness: float, rng: np.random.Generator
) -> Bool[np.ndarray, "pairs"]:
    """True for the `share` of the pairs (at least one) where liking and chance together are highest."""
    score = keenness * liking + rng.logistic(size=len(liking))
    kept = np.zeros(len(liking), dtype=bool)
    kept[np.argsort(-score)[: max(1, round(share * len(liking)))]] = True
    return kept


def _unseen(
    population: SyntheticPopulation,
    spec: FunnelSpec,
    viewed: Int64[np.ndarray, "views"],
    total: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, "purchases"]:
    """About `total` purchases of pairs not viewed, shared out in proportion to the views of a user."""
    views = np.bincount(viewed // spec.n_items, minlength=spec.n_users)
    counts = np.minimum(rng.multinomial(total, views / views.sum()), spec.n_items - views)
    pairs = []
    for block, liking in population.blocks():
        first = block.start * spec.n_items
        logit = population.logit(liking) + spec.keenness * liking
        inside = viewed[slice(*np.searchsorted(viewed, [first, first + logit.size]))]
        logit.flat[inside - first] = -np.inf
        pairs.append(np.flatnonzero(choose(logit, counts[block], rng)) + first)
    return np.concatenate(pairs)
