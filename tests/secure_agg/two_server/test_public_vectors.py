"""Public test vectors of drafts that compute in the same field.

They are not in the repository: `PRIVFED_TEST_DATA`/vdaf holds those of cfrg/draft-irtf-cfrg-vdaf (`test_vec/vdaf`, June
2026). What two verifiers open there of a proof of products is what `ProductProof.holds` reads here, but for the order
of the wires, and what they aggregate is a sum in the field.
"""

import json
import os
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

from secure_agg.two_server import field
from secure_agg.two_server.products import ProductProof

FOLDER = Path(os.environ.get("PRIVFED_TEST_DATA", "/nowhere")) / "vdaf"
PROOFS = 3


@pytest.fixture(params=[0, 1])
def vectors(request):
    path = FOLDER / f"Prio3SumVecWithMultiproof_{request.param}.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not in PRIVFED_TEST_DATA/vdaf")
    return json.loads(path.read_text(encoding="utf-8"))


def added(shares, count=None):
    words = [bytes.fromhex(share)[: None if count is None else 8 * count] for share in shares]
    return reduce(field.add, (field.decode(one, len(one) // 8) for one in words))


def test_aggregates_are_sums_in_the_field(vectors):
    assert added(vectors["agg_shares"]).tolist() == vectors["agg_result"]
    for report in vectors["reports"]:
        assert added(report["out_shares"]).tolist() == report["measurement"]


def test_proofs_that_were_opened_hold(vectors):
    width = vectors["chunk_length"]
    proof = ProductProof(length=width, kind="products", order=2, width=width)
    for report in vectors["reports"]:
        opened = added(report["verifier_shares"][0], PROOFS * (2 + 2 * width)).reshape(PROOFS, -1)
        for output, *wires, value in opened.tolist():
            ordered = np.array([*wires[::2], *wires[1::2], value], np.uint64)
            assert output == 0
            assert proof.holds(ordered)
            ordered[0] ^= np.uint64(1)
            assert not proof.holds(ordered)
