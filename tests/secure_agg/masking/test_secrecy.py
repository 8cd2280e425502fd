"""What the server sees is uniform, as far as statistics can tell; bounds so wide that chance alone does not trip them.

Each test of uniformity has a twin that shows it able to fail: with one more secret given away the same numbers are
anything but uniform.
"""

import json

import numpy as np
import pytest
from scipy import stats

from secure_agg import shamir
from secure_agg.masking import Stage, Suite, key_derivation, messages
from secure_agg.primitives.keys import KeyPair
from secure_agg.primitives.prg import add_keystreams

HEADER = messages.HEADER_BYTES
LENGTH = 1 << 15


def uniformity(data):
    """p-value of a chi-square test over the values of bytes."""
    return stats.chisquare(np.bincount(np.frombuffer(bytes(data), np.uint8), minlength=256)).pvalue


def looks_uniform(elements):
    """Over all bytes, and over the bytes of each position in an element."""
    table = np.ascontiguousarray(elements).view(np.uint8).reshape(-1, elements.itemsize)
    return min([uniformity(table), *(uniformity(np.ascontiguousarray(column)) for column in table.T)]) > 1e-9


class Seen:
    """A round as the server sees it, and what the test knows besides."""

    def __init__(self, play, clients=5, threshold=3, silent=(), **terms):
        game = play(clients, threshold, length=LENGTH, **terms)
        for one in game.ids:
            game.vectors[one] = np.full(LENGTH, 7 + one, game.terms.ring.dtype)
        game.until(Stage.MASKED_INPUT)
        self.game, self.context = game, game.server._context
        self.pairs = {one: game.clients[one]._state.keys[0] for one in game.ids}
        self.seeds = {one: bytes(game.clients[one]._state.self_seed) for one in game.ids}
        self.neighbours = {one: game.clients[one]._state.neighbours for one in game.ids}
        game.answer_all(but=silent)
        ring = game.terms.ring
        self.uploads = {
            one: ring.unpack(reply[HEADER:], LENGTH).copy() for one, reply in game.replies[Stage.MASKED_INPUT].items()
        }
        self.survivors = sorted(self.uploads)

    def self_mask(self, one):
        return key_derivation.self_mask_key(self.game.terms, self.context, self.seeds[one], one, bytes(32))

    def pair_mask(self, one, other):
        pair, their_key = self.pairs[one], self.pairs[other].public
        return key_derivation.pairwise_mask_key(
            self.game.terms, self.context, pair, ours=one, theirs=other, their_key=their_key, bound=bytes(32)
        )

    def unmasked(self, one, *, own=True, but=()):
        """An upload without its self mask (if `own`) and without its pair masks, `but` those with some neighbours."""
        others = [other for other in self.neighbours[one] if other not in but]
        added = [self.pair_mask(one, other) for other in others if one < other]
        taken = [self.pair_mask(one, other) for other in others if one > other]
        elements = self.uploads[one].copy()
        add_keystreams(elements, taken, [*added, *([self.self_mask(one)] if own else [])], self.game.terms.suite.stream)
        return elements


@pytest.mark.parametrize("suite", list(Suite))
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_upload_of_a_constant_vector_is_uniform(play, suite, bits):
    seen = Seen(play, suite=suite, bits=bits)
    for upload in seen.uploads.values():
        assert looks_uniform(upload)
    assert not looks_uniform(seen.game.vectors[0])


@pytest.mark.parametrize("bits", [3, 7, 12, 20, 33])
def test_packed_elements_are_uniform_in_their_own_ring(play, bits):
    """Over the lowest and the highest bits of the elements that the server unpacks; and their sum is the sum."""
    seen = Seen(play, bits=bits)
    ring = seen.game.terms.ring
    for one in seen.survivors:
        body = seen.game.replies[Stage.MASKED_INPUT][one][HEADER:]
        assert len(body) == -(-LENGTH * bits // 8)
        elements = ring.unpack(body, LENGTH)
        shown = min(bits, 8)
        for eight in (elements & ring.dtype.type(2**shown - 1), elements >> ring.dtype.type(bits - shown)):
            assert stats.chisquare(np.bincount(eight.astype(np.int64), minlength=2**shown)).pvalue > 1e-9
    expected = sum(seen.game.vectors[one].astype(object) for one in seen.survivors) % ring.modulus
    np.testing.assert_array_equal(seen.game.finish(), expected.astype(ring.dtype))


def test_uploads_are_uniform_until_the_last_mask_is_off(play):
    """All but one of the masks taken off, whichever it is: uniform. All off: the constant."""
    seen = Seen(play)
    for one in (0, 2, 4):
        assert looks_uniform(seen.unmasked(one, own=False))
        for other in seen.neighbours[one]:
            assert looks_uniform(seen.unmasked(one, but=[other]))
        assert (seen.unmasked(one) == 7 + one).all()


def test_two_clients_stay_uniform_but_for_their_sum(play):
    """All masks off except the one between them: each is uniform, and their sum is revealed."""
    seen = Seen(play)
    first, second = seen.unmasked(1, but=[3]), seen.unmasked(3, but=[1])
    assert looks_uniform(first)
    assert looks_uniform(second)
    assert (first + second == (7 + 1) + (7 + 3)).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_part_of_the_survivors_stays_uniform_with_all_that_the_server_learns(play, sparse):
    """The server has the self mask of every survivor and the mask key of every client that dropped out.

    The sum over all survivors but one is uniform; over all of them it is the total.
    """
    size = {"clients": 12, "threshold": 4, "neighbours": 6} if sparse else {"clients": 6, "threshold": 4}
    seen = Seen(play, **size, silent=[2])
    total = np.zeros(LENGTH, seen.game.terms.ring.dtype)
    for one in seen.survivors:
        survivors = [other for other in seen.neighbours[one] if other != 2]
        revealed = seen.unmasked(one, but=survivors)
        assert looks_uniform(revealed)
        total += revealed
    for left_out in seen.survivors:
        survivors = [other for other in seen.neighbours[left_out] if other != 2]
        assert looks_uniform(total - seen.unmasked(left_out, but=survivors))
    np.testing.assert_array_equal(total, sum(seen.game.vectors[one] for one in seen.survivors))
    np.testing.assert_array_equal(seen.game.finish(silent=[2]), total)


def test_the_total_less_one_revealed_seed_is_uniform(play):
    """All that is revealed in the end, but for the self mask of one survivor: the sum stays uniform."""
    seen = Seen(play)
    total = np.zeros(LENGTH, seen.game.terms.ring.dtype)
    for upload in seen.uploads.values():
        total += upload
    streams = [seen.self_mask(one) for one in seen.survivors]
    for kept in range(len(streams)):
        partly = total.copy()
        add_keystreams(partly, [], streams[:kept] + streams[kept + 1 :], seen.game.terms.suite.stream)
        assert looks_uniform(partly)
    add_keystreams(total, [], streams, seen.game.terms.suite.stream)
    assert (total == sum(7 + one for one in seen.survivors)).all()


def test_uploads_of_two_vectors_under_fresh_masks_have_nothing_in_common(play):
    one, other = Seen(play), Seen(play)
    assert looks_uniform(one.uploads[0] - other.uploads[0])
    assert looks_uniform(one.uploads[0] ^ other.uploads[0])


def test_shares_below_the_threshold_do_not_depend_on_the_secret():
    """Two secrets as unlike as can be: every share, and every pair of shares of three, has the same distribution."""
    rounds, threshold = 1500, 3
    low, high = (
        np.array([[list(share[1:]) for share in shamir.split(secret, threshold, 5)] for _ in range(rounds)], np.uint8)
        for secret in (bytes(32), b"\xff" * 32)
    )
    for shares in (low, high):
        for position in range(5):
            assert uniformity(shares[:, position]) > 1e-9
            assert uniformity(shares[:, position] - shares[:, (position + 1) % 5]) > 1e-9
    for position in range(5):
        for byte in (0, 15, 31):
            assert stats.ks_2samp(low[:, position, byte], high[:, position, byte]).pvalue > 1e-9


def test_threshold_shares_do_depend_on_the_secret():
    """The twin: with one share more the secret is there every time."""
    for secret in (bytes(32), b"\xff" * 32):
        shares = dict(enumerate(shamir.split(secret, 3, 5), start=1))
        assert shamir.reconstruct(shares, 3) == secret


def test_what_a_client_sends_and_stores_holds_no_secret_in_the_clear(play):
    """Private keys, seed and shares are in no message of the round but the shares that were asked for at the end."""
    game = play(5, 3)
    secrets = set()
    while game.server.awaits is not None:
        secrets |= secrets_now(game)
        game.answer_all()
        secrets |= secrets_now(game)
        game.advance()
    sent = b"".join(
        message for stage in (game.sent, game.replies) for by_client in stage.values() for message in by_client.values()
    )
    revealed = b"".join(game.replies[Stage.REVEAL].values())
    assert len(secrets) == 5 * (2 + 1 + 4 + 8)
    for secret in secrets:
        assert sent.count(secret) == revealed.count(secret)
    assert sum(secret in revealed for secret in secrets) == 5 * 4


def secrets_now(game):
    result = set()
    for client in game.clients.values():
        known = json.loads(client.snapshot())
        pairs = [pair for _, pair in known["held"]]
        texts = [*(known["keys"] or []), known["self_seed"], *(key for _, key in known["inbound"])]
        texts += [pair[:66] for pair in pairs] + [pair[66:] for pair in pairs]
        result |= {bytes.fromhex(text) for text in texts if set(text) - {"0"}}
    return result


def test_advertised_keys_say_nothing_of_one_another():
    """Mask key and channel key: bytes uniform but for the last, in themselves and in their difference."""
    pairs = [(KeyPair.generate().public, KeyPair.generate().public) for _ in range(4000)]
    table = np.array([[list(first), list(second)] for first, second in pairs], np.uint8)
    assert uniformity(np.ascontiguousarray(table[:, :, :31])) > 1e-9
    assert uniformity(np.ascontiguousarray(table[:, 0, :31] - table[:, 1, :31])) > 1e-9
    assert len({key for pair in pairs for key in pair}) == 8000


def test_a_commitment_is_neither_the_seed_nor_the_self_mask(play):
    seen = Seen(play)
    for one in seen.game.ids:
        commitment = key_derivation.self_mask_commitment(seen.context, seen.seeds[one], one)
        assert commitment not in {seen.seeds[one], seen.self_mask(one)}
        assert commitment == seen.game.replies[Stage.SHARES][one][HEADER : HEADER + 32]
        others = {key_derivation.self_mask_commitment(seen.context, seen.seeds[one], other) for other in seen.game.ids}
        assert len(others) == len(seen.game.ids)
