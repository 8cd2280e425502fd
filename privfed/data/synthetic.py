"""Generated ratings with the features that matter here, from a seed. No person is behind any of it.

Popularity, taste and attributes are those of `privfed.data.population`. Timestamps are whole seconds in
sessions, some of them equal; the order in time is independent of taste.
"""

import numpy as np

from privfed.data.interactions import Duplicates, Interactions, build
from privfed.data.people import demographics
from privfed.data.population import SyntheticPopulation, activity, choose, moments
from privfed.data.synthetic_spec import TERMS, SyntheticSpec


def generate(spec: SyntheticSpec, duplicates: Duplicates = "drop", min_per_user: int = 1) -> Interactions:
    """Generate the data set that `spec` describes; a row's position in the "file" is its position in time."""
    rng = np.random.default_rng(spec.seed)
    population = SyntheticPopulation.sample(spec, rng)
    counts = activity(spec, rng)
    items, likings = [], []
    for block, liking in population.blocks():
        chosen = choose(population.logit(liking), counts[block], rng)
        items.append(np.nonzero(chosen)[1])
        likings.append(liking[chosen])
    user, item, affinity = np.repeat(np.arange(spec.n_users), counts), np.concatenate(items), np.concatenate(likings)

    in_order = moments(user, spec.n_users, rng)
    seconds = in_order[np.lexsort((rng.random(len(user)), user))]
    rating = np.clip(np.rint(3.5 + 0.8 * affinity + 0.7 * rng.standard_normal(len(user))), 1, 5)
    rows = np.argsort(seconds, kind="stable")
    return build(
        spec.name,
        user[rows] + 1,
        item[rows] + 1,
        timestamp=seconds[rows],
        rating=rating[rows],
        catalogue=np.arange(1, spec.n_items + 1),
        attributes=demographics(population.people),
        item_info=population.titles(),
        duplicates=duplicates,
        min_per_user=min_per_user,
        synthetic=True,
        terms=TERMS,
    )
