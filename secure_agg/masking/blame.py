"""Who lied when a share turns out wrong: its dealer, who sealed a wrong one, or its holder, who revealed another.

Or when a client says so of a share that was sealed for it, and shows no evidence: either lies.

One wrong share does not tell. Many do: an honest client's wrong shares all are the fault of those at the other end, and
no more than so many clients lie. Each pair of a dealer and a holder between whom a share was wrong holds at least one
liar, so whoever is in such pairs with more clients than can lie is a liar itself.

These are suspicions and no proof. Which shares count as wrong follows from the explanation with the fewest wrong ones,
and clients that collude can arrange another: of n holders, n - t - w + 2 together can make w honest ones look wrong
although the secret comes out right, for a threshold t. Only a complaint under signed terms in the complete graph has
evidence.
"""

from collections import defaultdict
from collections.abc import Iterable


def liars(wrong: Iterable[tuple[int, int]], max_liars: int) -> frozenset[int]:
    """Clients in wrong pairs with more others than can lie.

    Args:
        wrong: dealer and holder of every wrong share.
        max_liars: number of clients around any one that may lie.
    """
    return frozenset(client for client, others in _partners(wrong).items() if len(others) > max_liars)


def suspects(wrong: Iterable[tuple[int, int]], max_liars: int, lie: str = "sent a wrong share") -> dict[int, str]:
    """Clients that sent wrong shares, or may have, and why.

    Args:
        wrong: dealer and holder of every wrong share.
        max_liars: number of clients around any one that may lie.
        lie: what one of each pair did.
    """
    partners = _partners(wrong)
    certain = {client for client, others in partners.items() if len(others) > max_liars}
    named = {
        client: f"shares between it and {len(partners[client])} clients were wrong, and at most {max_liars} lie"
        for client in sorted(certain)
    }
    for client in sorted(partners.keys() - certain):
        unexplained = sorted(partners[client] - certain)
        if unexplained:
            named[client] = f"either it or client {' and '.join(map(str, unexplained))} {lie}"
    return named


def _partners(wrong: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    partners: dict[int, set[int]] = defaultdict(set)
    for dealer, holder in wrong:
        partners[dealer].add(holder)
        partners[holder].add(dealer)
    return partners
