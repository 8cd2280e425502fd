"""Whether uploads of two rounds can be told to be one person's, were pseudonyms changed in between.

A run's server knows whose upload is whose, by a number that stays. This asks what changing the number would hide: the
scores that an attack on items gives an upload of the one round are compared with those of the other. Of the attacks
that need nothing but the upload the one that links best on some of the people is measured on the others, as everywhere
in an audit; the more people there are to be confused with, the less of them are named by chance.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from attacks import Knowledge, ServerView
from attacks.linkability import Linked, linked, measure_links, profiles, share_named
from attacks.membership import MultiRoundVote, PopularityGuesser, UploadAttack
from attacks.metrics import user_mean
from attacks.views import Scores
from privfed.audit.attack_runs.selection import selection_half
from privfed.audit.report.records import Interval, LinkRow, Tap
from privfed.engines.transcript import Observation

MIN_PEOPLE = 5
"""Who choose, and who are looked for: with fewer of either nothing is recorded."""


def two_releases(
    observations: Sequence[Observation], users: Int64[np.ndarray, "users"]
) -> tuple[Observation, Observation] | None:
    """The two rounds that most of these users took part in, as far apart as can be; None of a single round."""
    if len(observations) < 2:
        return None
    here = np.stack([np.isin(users, seen.users.numpy()) for seen in observations]).astype(np.int64)
    both = here @ here.T
    pairs = ((a, b) for a in range(len(both)) for b in range(a + 1, len(both)))
    first, second = max(pairs, key=lambda pair: (both[pair], pair[1] - pair[0]))
    return observations[first], observations[second]


def link_releases(
    first: ServerView,
    second: ServerView,
    users: Int64[np.ndarray, "users"],
    attacks: Sequence[UploadAttack],
    knowledge: Knowledge,
    tap: Tap,
) -> list[LinkRow]:
    """How well users are found again; nothing where too few took part in both rounds.

    Args:
        first: uploads of one round.
        second: of a later one.
        users: of both, ascending.
        attacks: to choose from; those that give everybody the same scores, or join rounds, are left out.
        knowledge: of the adversary.
        tap: where the uploads were seen.
    """
    here = first.present() & second.present()
    choosing = selection_half(users[here])
    if min(choosing.sum(), (~choosing).sum()) < MIN_PEOPLE:
        return []
    similar = {
        attack.name: linked(*(_profiles(attack.score(view, knowledge)[here]) for view in (first, second)))
        for attack in attacks
        if not isinstance(attack, PopularityGuesser | MultiRoundVote)
    }
    if not similar:
        return []
    best = max(similar, key=lambda name: _among(similar[name], choosing).auc)
    found = _among(similar[best], ~choosing)
    share, auc = share_named(found.named), user_mean(found.aucs)
    return [
        LinkRow(
            attack=best,
            tap=tap,
            rounds=[first.round + 1, second.round + 1],
            selection_users=int(choosing.sum()),
            n_users=len(found.named),
            accuracy=Interval(value=share.value, lo=share.lo, hi=share.hi),
            auc=Interval(value=auc.value, lo=auc.lo, hi=auc.hi),
            chance=found.chance,
        )
    ]


def _profiles(scores: Scores) -> Float64[np.ndarray, "users items"]:
    own: Float64[np.ndarray, "users items"] = profiles(scores.astype(np.float64))
    return own


def _among(similar: Float64[np.ndarray, "users users"], people: np.ndarray) -> Linked:
    found: Linked = measure_links(similar[np.ix_(people, people)], np.arange(people.sum()))
    return found
