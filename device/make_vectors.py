"""Write the vectors to which the TypeScript module is equal bit for bit: `python device/make_vectors.py`.

Inputs come from fixed keys, never from a trained run, so every machine writes the same files. Uploads, ring elements,
keys and masks are computed by privfed and secure_agg themselves. Scores are computed here in the order of operations
that the device has (sums in float64, along the head), because the order of a matrix product is the processor's; a test
holds privfed's own scores next to them.
"""

import json
from collections.abc import Mapping
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from privfed.contracts import Block, Schema, share_of
from privfed.data import Histories
from privfed.engines.nodes.devices.terms import DeviceQuery, announced_terms
from privfed.federation import Call, Message, Streams
from privfed.guards.client_guard import shrink_factors
from privfed.guards.ring_code import RingCode
from privfed.methods import ClientData
from privfed.methods.popularity import COUNT, COUNTS, PopularityClients, PopularityConfig
from privfed.methods.private_gram import PrivateGramClients, PrivateGramConfig
from privfed.methods.private_gram.queries import AGAIN, GRAM
from privfed.methods.shared.popular_head import POPULARITY, unit_block
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from privfed.updates import packed_size
from secure_agg.encoding import Ring
from secure_agg.masking.key_derivation import pairwise_mask_key, self_mask_key
from secure_agg.masking.terms import Terms
from secure_agg.noise.event import NoiseEvent
from secure_agg.noise.random_source import RandomSource
from secure_agg.noise.rdp import skellam_rdp
from secure_agg.noise.shares import DistributedNoise
from secure_agg.noise.subkeys import subkey
from secure_agg.noise.tables import cumulative, inverse_cdf_table
from secure_agg.primitives.keys import KeyPair, derive
from secure_agg.primitives.prg import add_keystreams, random_uints

FOLDER = Path(__file__).parent / "vectors"
ITEMS, SIDE, BEYOND = 60, 16, 5
HISTORIES = ([], [3], [59], [0, 1, 2, 5, 8, 13, 21, 34, 55], [7, 11, 40, 41, 42], [*range(0, 60, 2)], [*range(60)])
Document = dict[str, Any]


def key(name: str) -> bytes:
    """32 bytes that everybody knows."""
    return sha256(name.encode()).digest()


def uniform(name: str, *shape: int) -> Float32[np.ndarray, "*shape"]:
    """Numbers of [0, 1) in float32, from the key of that name."""
    words = random_uints(int(np.prod(shape)), np.uint32, key(name)) >> 8
    return (words.astype(np.float64) / 2**24).astype(np.float32).reshape(shape)


def hexadecimal(values: Any) -> str:
    """The bytes of an array, little-endian."""
    array = np.ascontiguousarray(values.numpy() if isinstance(values, Tensor) else values)
    return array.astype(array.dtype.newbyteorder("<")).tobytes().hex()


def tensors(side: int, beyond: int) -> dict[str, Tensor]:
    """A made-up published model, with equal scores in it: rows 3 and 4 of the weights are alike, and so are shares."""
    ranking = np.argsort(uniform("ranking", ITEMS), kind="stable")
    order = np.empty(ITEMS, np.float32)
    order[ranking] = np.arange(ITEMS, 0, -1, dtype=np.float32) / np.float32(ITEMS)
    shares = np.sort(uniform("shares", side))[::-1] / np.float32(2) if side else np.zeros(0, np.float32)
    weights = uniform("weights", side, side) - np.float32(0.5)
    scale = np.float32(0.5) + uniform("scale", side)
    if side > 4:
        shares[4], scale[4], weights[4] = shares[3], scale[3], weights[3]
    made = {
        "head": ranking[:side].astype(np.int64),
        "shares": shares,
        "scale": scale,
        "weights": weights,
        "order": order,
        "beyond": ranking[side : side + beyond].astype(np.int64),
        "beyond_shares": uniform("beyond shares", beyond) / np.float32(10),
        "beyond_weights": uniform("beyond weights", beyond, side) - np.float32(0.5),
    }
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in made.items()}


def clients_data() -> ClientData:
    """All histories."""
    owners = np.repeat(np.arange(len(HISTORIES)), [len(one) for one in HISTORIES])
    own = Histories.from_pairs(owners, np.concatenate(HISTORIES).astype(np.int64), len(HISTORIES), ITEMS)
    return ClientData(own, own)


def clients() -> PrivateGramClients:
    """A device for each history."""
    return PrivateGramClients(PrivateGramConfig(), clients_data(), Streams.from_seed(0))


def counters() -> PopularityClients:
    """Likewise, of `popularity`."""
    return PopularityClients(PopularityConfig(), clients_data(), Streams.from_seed(0))


def in_order(history: list[int], model: Mapping[str, Tensor]) -> Float32[np.ndarray, " items"]:
    """Scores in the device's order of operations: float32 throughout, but sums in float64, from first to last."""
    one = {name: value.numpy() for name, value in model.items()}
    own = np.isin(one["head"], history).astype(np.float32)
    owned = np.float32(own.sum())
    if not owned:
        return one["order"]
    vector = (own - np.minimum(owned * one["shares"], np.float32(1))) * one["scale"]

    def product(matrix: Float32[np.ndarray, "rows side"]) -> Float32[np.ndarray, " rows"]:
        parts: Float64[np.ndarray, "rows side"] = matrix.astype(np.float64) * vector.astype(np.float64)
        return np.add.accumulate(parts, axis=1)[:, -1].astype(np.float32)

    best = owned * one["shares"] + product(one["weights"]) / one["scale"]
    scores = (best.min() - np.float32(2)) + one["order"]
    scores[one["head"]] = best
    if len(one["beyond"]):
        scores[one["beyond"]] = owned * one["beyond_shares"] + product(one["beyond_weights"])
    return scores


def ranked(history: list[int], scores: Float32[np.ndarray, " items"]) -> list[int]:
    """What `recommend` shows: without the history, equal scores in the order of items."""
    wide = scores.astype(np.float64)
    wide[history] = -np.inf
    return [int(item) for item in np.argsort(-wide, kind="stable") if np.isfinite(wide[item])]


def recommending() -> Document:
    """Models, histories, scores and lists."""
    cases = []
    for side, beyond in ((SIDE, BEYOND), (SIDE, 0), (0, 0)):
        model = tensors(side, beyond)
        scored = [in_order(history, model) for history in HISTORIES]
        cases.append(
            {
                "model": {name: hexadecimal(v.int() if v.dtype == torch.int64 else v) for name, v in model.items()},
                "scores": [hexadecimal(one) for one in scored],
                "lists": [ranked(history, one) for history, one in zip(HISTORIES, scored, strict=True)],
            }
        )
    return {"items": ITEMS, "histories": HISTORIES, "cases": cases, "popularity": [_popular(n) for n in (1.0, 0.01)]}


def _popular(scale: float) -> Document:
    """Noisy counts, some of them below zero, with equal ones; below a largest of 1 they are scores as they are."""
    counts = torch.from_numpy((uniform("counts", ITEMS) - np.float32(0.1)) * np.float32(40 * scale)).unsqueeze(1)
    counts[7] = counts[11]
    users, devices = torch.arange(len(HISTORIES)), counters()
    scored = devices.score(users, Message({COUNTS: counts}), None, None).numpy()
    return {
        "counts": hexadecimal(counts),
        "scores": [hexadecimal(one) for one in scored],
        "lists": [ranked(history, one) for history, one in zip(HISTORIES, scored, strict=True)],
    }


def schema(name: str, mechanism: DistributedGaussian, *, diagonal: bool, weight: float, again: float = 0.0) -> Schema:
    """Of one query; a weight above 1 asks for more than the clip norm allows, and clipping takes it back.

    Args:
        name: of the query.
        mechanism: with the clip norm.
        diagonal: whether the Gram matrix has its own.
        weight: of every block.
        again: share of the second query for the popularity of the head.
    """

    def block(shape: tuple[int, ...], share: float) -> Block:
        unit = unit_block(shape, mechanism.clip_norm, share)
        return Block(shape, weight=unit.weight * weight, share=share)

    if name == POPULARITY:
        return {name: block((ITEMS, 1), 0.25)}
    gram = {GRAM: block((packed_size(SIDE, diagonal=diagonal),), 0.75 * (1 - again))}
    return gram | ({AGAIN: block((SIDE, 1), 0.75 * again)} if again else {})


def uploading() -> Document:
    """Terms, and for each query and history the clipped values, the whole steps with noise, and packed elements."""
    model, devices = tensors(SIDE, 0), clients()
    cases = []
    many = DistributedGaussian(clip_norm=1.0, noise_multiplier=6.0, n_min_honest=200)
    few = DistributedGaussian(clip_norm=0.3, noise_multiplier=2.0, n_min_honest=50, bits=18)
    plans = (
        (many.model_copy(update={"colluding": 10}), 300, True, 1.0, 0.0),
        (few, 60, False, 1.0, 0.0),
        (many, 300, True, 2.0, 0.0),
        (many, 300, False, 2.0, 0.0),
        (many, 300, True, 1.0, 0.1),
        (few, 60, False, 1.0, 0.15),
        (many, 300, True, 2.0, 0.1),
        (many, 300, False, 2.0, 0.1),
    )
    for mechanism, cohort, diagonal, weight, again in plans:
        blocks = [schema(n, mechanism, diagonal=diagonal, weight=weight, again=again) for n in (POPULARITY, GRAM)]
        cases.append(_case(mechanism, cohort, {POPULARITY: blocks[0], GRAM: blocks[1]}, devices, diagonal=diagonal))
    counting: Schema = {COUNTS: Block((ITEMS, 1), bound=1)}
    for mechanism, cohort, clip_norm in ((many, 300, 8.0), (many, 300, 4.0), (few, 60, 4.0)):
        clipped = mechanism.model_copy(update={"clip_norm": clip_norm})
        cases.append(_case(clipped, cohort, {COUNT: counting}, counters(), diagonal=False))
    names = ("head", "shares", "scale")
    head = {name: hexadecimal(model[name].int() if name == "head" else model[name]) for name in names}
    return {"histories": HISTORIES, "head": head, "cases": cases}


def _case(
    mechanism: DistributedGaussian, cohort: int, asked: Mapping[str, Schema], devices: Any, *, diagonal: bool
) -> Document:
    """Terms of a run of these steps, and what every history uploads in each."""
    model, users = tensors(SIDE, 0), torch.arange(len(HISTORIES))
    told, uploads, events = [], [], []
    for index, (name, blocks) in enumerate(asked.items()):
        code = RingCode(mechanism, blocks, cohort)
        assert code.distributed is not None
        told.append(DeviceQuery(name, code, diagonal))
        events.append(code.distributed.event())
        call = Call(0, 0, name, index, users, Streams.from_seed(0), blocks)
        sent = getattr(devices, name)(call, Message({n: model[n] for n in ("head", "shares", "scale")}))
        bound = torch.tensor(mechanism.clip_norm * share_of(blocks) ** 0.5, dtype=torch.float64)
        # What is within its bound stays as it is: on that edge, the guard's last bit is the processor's.
        norms = sent.norms(2)
        sent.scale_(torch.where(norms <= bound, 1.0, shrink_factors(norms, bound)))
        dense = sent.materialise(users)
        for user in users.tolist():
            seed = key(f"upload {name} {user}")
            elements = code.encode(dense, user, seed)
            uploads.append(
                {
                    "query": index,
                    "history": user,
                    "values": hexadecimal(torch.cat([dense[block][user].reshape(-1) for block in blocks])),
                    "key": seed.hex(),
                    "packed": hexadecimal(code.ring.pack(elements)),
                }
            )
    terms = announced_terms(mechanism, told, delta=1e-6, cohort=cohort)
    return {"terms": terms, "uploads": uploads, "rdp": _divergences(events)}


def _divergences(events: list[NoiseEvent]) -> list[Document]:
    orders = [2, 3, 8, 64, 300]
    return [
        {"orders": orders, "values": skellam_rdp(orders, one.total_variance, one.l2, one.l1).tolist()} for one in events
    ]


def drawing() -> Document:
    """Noise at given words, and next to thresholds, where 64 bits do not decide."""
    cases = []
    for total, honest in ((0.75, 3), (1234.5, 100), (5e6, 7)):
        code = DistributedGaussian(clip_norm=1.0, noise_multiplier=1.0, n_min_honest=honest)
        variance = _fraction(total, honest)
        table = inverse_cdf_table(code.law, variance)
        seed = key(f"noise {total}")
        edges = cumulative(code.law, variance, 64)
        middle = len(edges) // 2
        words = [edge + step for edge in edges[middle - 2 : middle + 3] for step in (-2, -1, 0, 1, 2)]
        words = [word for word in words if 0 <= word < 2**64]
        cases.append(
            {
                "total_variance": total,
                "min_honest": honest,
                "key": seed.hex(),
                "draws": table.sample(500, seed).tolist(),
                "thresholds": sha256(",".join(map(str, edges)).encode()).hexdigest(),
                "words": [str(word) for word in words],
                "at_words": table.invert(np.array(words, np.uint64), lambda at, k=seed: _further(k, at)).tolist(),
            }
        )
    return {"cases": cases}


def _fraction(total: float, honest: int) -> Fraction:
    return DistributedNoise("skellam", total, honest).client_variance


def _further(seed: bytes, draw: int) -> RandomSource:
    return RandomSource(subkey(seed, "further bits", draw))


def masking() -> Document:
    """Key streams, derived keys, agreements, and masked ring elements of three widths."""
    ours, theirs = KeyPair.from_private(key("ours")), KeyPair.from_private(key("theirs"))
    context, bound, seed = key("context"), key("bound"), key("seed")
    round_ = Terms(run=bytes(16), round=0, bits=32, length=1, threshold=2)
    pair_key = pairwise_mask_key(round_, context, ours, ours=7, theirs=3, their_key=theirs.public, bound=bound)
    self_key = self_mask_key(round_, context, seed, 7, bound)
    masked = []
    for bits, kind in ((7, np.uint8), (16, np.uint16), (18, np.uint32), (32, np.uint32)):
        elements = (random_uints(101, np.uint64, key("elements")) >> (64 - bits)).astype(kind)
        total = elements.copy()
        add_keystreams(total, [self_key, key("plus")], [pair_key])
        ring = Ring(bits)
        masked.append(
            {"bits": bits, "elements": elements.tolist(), "packed": hexadecimal(ring.pack(ring.reduce_(total)))}
        )
    return {
        "ours": key("ours").hex(), "our_public": ours.public.hex(), "theirs": theirs.public.hex(),
        "agreed": ours.agree(theirs.public).hex(), "context": context.hex(), "bound": bound.hex(), "seed": seed.hex(),
        "our_id": 7, "their_id": 3, "pair_key": pair_key.hex(), "self_key": self_key.hex(), "plus": key("plus").hex(),
        "derived": derive(seed, 96, label="a purpose", context=context, parts=[b"", b"part"]).hex(), "masked": masked,
        "low_order": [bytes(32).hex(), (b"\x01" + bytes(31)).hex()],
    }  # fmt: skip


VECTORS = {"recommending": recommending, "uploading": uploading, "drawing": drawing, "masking": masking}


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in VECTORS.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
