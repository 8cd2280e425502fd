"""Proofs of inner products: complete, caught when wrong, and simulatable to the bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg.two_server import field
from secure_agg.two_server.products import ProductProof

P = field.MODULUS
KINDS = ("squares", "products", "digits")
POINT = 1234567890123


def drawn(name, count):
    return field.expand(str(name).encode().ljust(32), count)


def statement(length, kind):
    proof = ProductProof.of_length(length, kind)
    vectors = [drawn(f"v{place}", length) for place in range(1 if kind == "squares" else 2)]
    return proof, vectors, proof.prove(vectors, drawn("front", proof.wires))


def opened(proof, vectors, whole, point=POINT):
    """Both verifiers' shares of the result and of what is opened, added."""
    shares = [drawn(f"s{place}", proof.length) for place in range(len(vectors))]
    proof_share = drawn("p", proof.size)
    first = [field.subtract(one, share) for one, share in zip(vectors, shares, strict=True)]
    results = [
        proof.query(first, field.subtract(whole, proof_share), point),
        proof.query(shares, proof_share, point),
    ]  # fmt: skip
    return (field.add(*parts) for parts in zip(*results, strict=True))


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 200), kind=st.sampled_from(KINDS))
def test_right_products_are_accepted_and_summed(length, kind):
    proof, vectors, whole = statement(length, kind)
    assert len(whole) == proof.size
    assert proof.width * (proof.order - 1) >= length
    result, shown = opened(proof, vectors, whole)
    assert len(shown) == proof.revealed
    assert proof.holds(shown)
    pairs = [(int(a), int(b)) for a, b in zip(vectors[0], vectors[-1], strict=True)]
    wanted = [a * math.prod(b - digit for digit in range(16)) if kind == "digits" else a * b for a, b in pairs]
    assert int(result) == sum(wanted) % P


@pytest.mark.parametrize("length", [100, 10_000, 1_000_000])
def test_a_proof_is_as_short_as_the_square_root(length):
    assert ProductProof.of_length(length, "squares").size < 3.2 * length**0.5 + 8


@pytest.mark.parametrize("kind", KINDS)
def test_any_altered_element_of_a_proof_is_caught(kind):
    proof, vectors, whole = statement(23, kind)
    for place in range(proof.size):
        wrong = whole.copy()
        wrong[place] = field.add(wrong[place : place + 1], field.constant(1)[None])[0]
        _, shown = opened(proof, vectors, wrong)
        assert not proof.holds(shown), place


@pytest.mark.parametrize("kind", KINDS)
def test_any_altered_element_of_a_vector_is_caught(kind):
    proof, vectors, whole = statement(23, kind)
    for vector in vectors:
        for place in range(23):
            kept = vector[place]
            vector[place] = (int(kept) + 5) % P
            _, shown = opened(proof, vectors, whole)
            vector[place] = kept
            assert not proof.holds(shown)


def test_who_knows_the_point_proves_anything():
    """What soundness rests on: the same forgery is caught at every other point."""
    proof, vectors, whole = statement(40, "squares")
    weights = field.lagrange_weights(2 * proof.order, POINT)
    forged = whole.copy()
    result, free = proof.wires + 2, proof.wires + 1  # the first inner product, and a value that is none
    forged[result] = (int(forged[result]) + 1000) % P
    forged[free] = (int(forged[free]) - 1000 * int(weights[2]) * pow(int(weights[1]), -1, P)) % P
    total, shown = opened(proof, vectors, forged)
    assert proof.holds(shown)
    assert int(total) == (int(field.dot(vectors[0], vectors[0])) + 1000) % P
    for other in range(POINT + 1, POINT + 30):
        assert not proof.holds(list(opened(proof, vectors, forged, other))[1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_opened_is_one_to_one_with_the_front_whatever_the_vectors(kind):
    """Perfect zero knowledge: for two statements and any target, fronts exist that open exactly the target."""
    proof, vectors, _ = statement(30, kind)
    target = drawn("target", proof.wires)
    weight = field.lagrange_weights(proof.order, POINT)[0]
    assert int(weight) != 0
    views = []
    for case in (vectors, [np.zeros(30, np.uint64) for _ in vectors]):
        _, at_zero = opened(proof, case, proof.prove(case, np.zeros(proof.wires, np.uint64)))
        missing = field.subtract(target, at_zero[:-1])
        front = field.multiply(missing, field.inverse(weight[None]))
        _, shown = opened(proof, case, proof.prove(case, front))
        assert np.array_equal(shown[:-1], target)
        assert proof.holds(shown)
        views.append(shown)
    assert np.array_equal(*views)
