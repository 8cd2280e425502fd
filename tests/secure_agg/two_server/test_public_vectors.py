"""Public test vectors of the draft whose field and proof of products these are: cfrg/draft-irtf-cfrg-vdaf.

Compared are the field, its sums, and the proof itself: what a prover sends (`ProductProof.prove`) and what a verifier
opens of its shares (`ProductProof.query`), to the last bit. The draft's wires stand in another order, and it leaves out
the last value of the gadget polynomial, which follows from the others. Its messages and its XOF are not those of this
package; the XOF is written out here.

One report is typed in, from `test_vec/vdaf/Prio3Count_0.json` of commit 520389254 (June 2026; code components of IETF
documents are under the Revised BSD License). `PRIVFED_TEST_DATA`/vdaf may hold that folder's other files.
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
VERSION, SEED, RATE = 18, 32, 168
MEASUREMENT, PROOF, JOINT, QUERY, JOINT_SEED = 1, 2, 3, 5, 6
SEVERAL = 3
"""Proofs of a report of the multiproof variant."""
COUNTED = bytes(range(SEED)).hex()
COUNT = {
    "ctx": b"some application".hex(),
    "verify_key": COUNTED,
    "shares": 2,
    "agg_result": 1,
    "agg_shares": ["355e16daa732744c", "cda1e92557cd8bb3"],
    "reports": [
        {
            "measurement": 1,
            "nonce": COUNTED[:32],
            "public_share": "",
            "input_shares": [
                "355e16daa732744c34dc71fa4c85d209f9af2ecf751609386ed9e2714ecc9e6bb2277498ac41e75c01d81b4cb8485926",
                COUNTED,
            ],
            "out_shares": ["355e16daa732744c", "cda1e92557cd8bb3"],
            "verifier_shares": [
                [
                    "cd7905720f16e5d9ef7657a336307ae8f3fe96d36cc09019257268349e7a7d72",
                    "3486fa8defe91a26a2eb81c1638c36bcf227593ab1b0e78b0d2775a9788ca884",
                ]
            ],
        }
    ],
}  # fmt: skip
XOF = {
    "seed": COUNTED, "dst": b"domain separation tag".hex(), "binder": b"binder string".hex(),
    "derived_seed": "b62ef0a2778190792d4d42d8c167ba20e0c37a3f319ba79645829c427d70eea5",
}  # fmt: skip


def permuted(lanes):
    """Keccak-p[1600, 12] of 25 lanes."""
    mask, constants, state = 2**64 - 1, [], 1
    for _ in range(24):
        constant = 0
        for bit in range(7):
            constant |= (state & 1) << (2**bit - 1)
            state = (state << 1) ^ (0x171 * (state >> 7))
        constants.append(constant)

    def turn(word, by):
        return (word << by % 64 | word >> (64 - by % 64)) & mask

    for constant in constants[12:]:
        parity = [reduce(int.__xor__, lanes[x::5]) for x in range(5)]
        lanes = [lane ^ parity[(i - 1) % 5] ^ turn(parity[(i + 1) % 5], 1) for i, lane in enumerate(lanes)]
        x, y, moved = 1, 0, [lanes[0], *[0] * 24]
        for step in range(24):
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = turn(lanes[x + 5 * y], (step + 1) * (step + 2) // 2)
            x, y = y, (2 * x + 3 * y) % 5
        lanes = [moved[i] ^ ~moved[i - i % 5 + (i + 1) % 5] & moved[i - i % 5 + (i + 2) % 5] for i in range(25)]
        lanes[0] ^= constant
    return lanes


def xof(seed, tag, binder, count):
    """TurboSHAKE128 with the domain 1, as the draft feeds it."""
    message = len(tag).to_bytes(2, "little") + tag + bytes([len(seed)]) + seed + binder + b"\1"
    message += bytes(-len(message) % RATE)
    lanes, out = [0] * 25, b""
    for start in range(0, len(message), RATE):
        block = message[start : start + RATE]
        if start + RATE == len(message):
            block = block[:-1] + bytes([block[-1] ^ 0x80])
        words = [int.from_bytes(block[at : at + 8], "little") for at in range(0, RATE, 8)]
        lanes = permuted([lane ^ word for lane, word in zip(lanes, [*words, *[0] * 4], strict=True)])
    while len(out) < count:
        out += b"".join(lane.to_bytes(8, "little") for lane in lanes)[:RATE]
        lanes = permuted(lanes)
    return out[:count]


class Circuit:
    """What one file says of its circuit, in this package's words."""

    def __init__(self, vectors):
        self.counts = "length" not in vectors
        self.shares, self.context = vectors["shares"], bytes.fromhex(vectors["ctx"])
        self.key = bytes.fromhex(vectors["verify_key"])
        self.proofs, self.algorithm = (1, 1) if self.counts else (SEVERAL, 2**32 - 1)
        bits = 1 if self.counts else vectors["max_measurement"].bit_length() * vectors["length"]
        width = 1 if self.counts else vectors["chunk_length"]
        self.bits, calls = bits, -(-bits // width)
        order = 1 << calls.bit_length()
        self.calls, self.proof = calls, ProductProof(calls * width, "products", order, width)
        self.sent = self.proof.size - 1

    def tag(self, usage):
        return bytes([VERSION, 0]) + self.algorithm.to_bytes(4, "big") + usage.to_bytes(2, "big") + self.context

    def expand(self, seed, usage, binder, count):
        words = np.frombuffer(xof(seed, self.tag(usage), binder, 8 * (count + 4)), "<u8")
        return words[words < field.MODULUS][:count]

    def inputs(self, report, party):
        """A party's shares of the bits and of all proofs, one after another."""
        share = bytes.fromhex(report["input_shares"][party])
        total = self.proofs * self.sent
        if party:
            binder, several = bytes([party]), bytes([self.proofs])
            return (
                self.expand(share[:SEED], MEASUREMENT, binder, self.bits),
                self.expand(share[:SEED], PROOF, several + binder, total),
            )
        words = field.decode(share[: 8 * (self.bits + total)], self.bits + total)
        return words[: self.bits], words[self.bits :]

    def joint(self, report):
        """The random weights of every proof, none where a circuit has none."""
        if self.counts:
            return [None]
        seed = xof(bytes(SEED), self.tag(JOINT_SEED), bytes.fromhex(report["public_share"]), SEED)
        assert seed.hex() == report["verifier_messages"][0]
        return self.expand(seed, JOINT, bytes([self.proofs]), self.proofs * self.calls).reshape(self.proofs, -1)

    def points(self, report):
        binder = bytes([self.proofs]) + bytes.fromhex(report["nonce"])
        return self.expand(self.key, QUERY, binder, self.proofs).tolist()

    def vectors(self, bits, weights, shares):
        """Both factors of every product, of one party's share of the bits, or of the bits where `shares` is 1."""
        if self.counts:
            return [bits, bits]
        padded = np.zeros(self.proof.length, np.uint64)
        padded[: self.bits] = bits
        powers = [
            [pow(weight, j, field.MODULUS) for j in range(1, self.proof.width + 1)] for weight in weights.tolist()
        ]
        one = np.full_like(padded, pow(shares, -1, field.MODULUS))
        return [field.multiply(np.array(powers, np.uint64).reshape(-1), padded), field.subtract(padded, one)]

    def ours(self, sent):
        """A proof of the draft as this package writes it."""
        wires = self.proof.wires
        front, values = sent[:wires], sent[wires:]
        # Its degree is below the number of values less one, so the highest coefficient is zero.
        roots = field.roots(self.proof.points)
        last = field.subtract(field.constant(0), field.multiply(roots[1], field.dot(values, roots[: len(values)])))
        return np.concatenate([front[::2], front[1::2], values, last[None]])

    def opened(self, words):
        """What a verifier of the draft opens for one proof: the circuit's output, the wires, the value."""
        output, wires, value = words[0], words[1:-1], words[-1:]
        return output, np.concatenate([wires[::2], wires[1::2], value])


def added(shares):
    return reduce(field.add, shares)


def read(name):
    path = FOLDER / f"Prio3{name}.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not in PRIVFED_TEST_DATA/vdaf")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(
    params=["typed in", *(f"Count_{n}" for n in range(3)), *(f"SumVecWithMultiproof_{n}" for n in range(2))]
)
def vectors(request):
    return COUNT if request.param == "typed in" else read(request.param)


def test_the_expansion_is_the_drafts():
    seed, tag, binder = (bytes.fromhex(XOF[name]) for name in ("seed", "dst", "binder"))
    assert xof(seed, tag, binder, SEED).hex() == XOF["derived_seed"]
    assert xof(seed, tag, binder, 2 * RATE)[:SEED].hex() == XOF["derived_seed"]


def test_aggregates_are_sums_in_the_field(vectors):
    def total(shares):
        found = added([field.decode(bytes.fromhex(one), len(one) // 16) for one in shares]).tolist()
        return found[0] if "length" not in vectors else found

    assert total(vectors["agg_shares"]) == vectors["agg_result"]
    for report in vectors["reports"]:
        assert total(report["out_shares"]) == report["measurement"]


def test_a_proof_is_to_the_bit_what_the_drafts_prover_sends(vectors):
    circuit = Circuit(vectors)
    for report in vectors["reports"]:
        bits, proofs = map(added, zip(*(circuit.inputs(report, party) for party in range(circuit.shares)), strict=True))
        assert set(bits.tolist()) <= {0, 1}
        for sent, weights in zip(proofs.reshape(circuit.proofs, -1), circuit.joint(report), strict=True):
            whole = circuit.ours(sent)
            both = circuit.vectors(bits, weights, 1)
            assert np.array_equal(circuit.proof.prove(both, whole[: circuit.proof.wires]), whole)


def opened_by_all(circuit, report):
    """Of every proof the output and what is revealed, each verifier's share compared with the draft's."""
    proof, weights, points = circuit.proof, circuit.joint(report), circuit.points(report)
    found = []
    for party in range(circuit.shares):
        bits, proofs = circuit.inputs(report, party)
        count = circuit.proofs * (proof.wires + 2)
        theirs = field.decode(bytes.fromhex(report["verifier_shares"][0][party])[: 8 * count], count)
        for number, (sent, rows) in enumerate(
            zip(*(x.reshape(circuit.proofs, -1) for x in (proofs, theirs)), strict=True)
        ):
            both = circuit.vectors(bits, weights[number], circuit.shares)
            total, shown = proof.query(both, circuit.ours(sent), points[number])
            # A count is right where its square less itself is zero.
            total = field.subtract(total, bits[0]) if circuit.counts else total
            output, expected = circuit.opened(rows)
            assert total == output
            assert np.array_equal(shown, expected)
            found.append(np.concatenate([total[None], shown]))
    return added(np.array(found).reshape(circuit.shares, circuit.proofs, -1))


def test_every_verifier_opens_to_the_bit_what_the_drafts_does_and_together_they_hold(vectors):
    circuit = Circuit(vectors)
    for report in vectors["reports"]:
        for output, *opened in opened_by_all(circuit, report):
            assert output == 0
            assert circuit.proof.holds(np.array(opened))
            opened[0] ^= np.uint64(1)
            assert not circuit.proof.holds(np.array(opened))


@pytest.mark.parametrize("what", ["gadget_poly", "helper_seed", "meas_share", "wire_seed"])
def test_what_the_drafts_verifiers_refuse_is_refused(what):
    vectors = read(f"Count_bad_{what}")
    circuit = Circuit(vectors)
    (report,) = vectors["reports"]
    ((output, *opened),) = opened_by_all(circuit, report)
    assert output or not circuit.proof.holds(np.array(opened))
