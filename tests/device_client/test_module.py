"""The module equals Python on published vectors and on a served run, is compiled from its sources, and is small."""

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import privfed
from privfed.api.publishing import LASTING, PublishedModel
from privfed.api.result import TrainedRun
from privfed.cli.static_server import StaticServer
from privfed.contracts import share_of
from privfed.federation import Call, Message, Streams
from privfed.guards.client_guard import shrink_factors
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian

DEVICE = Path(__file__).resolve().parents[2] / "device"
LARGEST_BUNDLE = 30_000
Node = Callable[..., "subprocess.CompletedProcess[str]"]


def read(name: str) -> Any:
    return json.loads((DEVICE / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["recommending", "uploading", "drawing", "masking"])
def test_the_vectors_are_what_the_script_writes(vectors: ModuleType, name: str) -> None:
    assert json.loads(json.dumps(vectors.VECTORS[name]())) == read(f"vectors/{name}.json")


def test_the_scores_of_the_vectors_are_those_of_the_clients(vectors: ModuleType) -> None:
    """But for the order of the sums in a matrix product: a few units in the last place of the largest score."""
    devices = vectors.clients()
    for side, beyond in ((vectors.SIDE, vectors.BEYOND), (vectors.SIDE, 0), (0, 0)):
        model = vectors.tensors(side, beyond)
        found = devices.score(torch.arange(len(vectors.HISTORIES)), Message(model), None, None).numpy()
        for history, scores in zip(vectors.HISTORIES, found, strict=True):
            ours = vectors.in_order(history, model)
            assert np.abs(ours - scores).max() <= 2.0**-20 * max(np.abs(scores).max(), 1)
            assert vectors.ranked(history, scores) == vectors.ranked(history, ours)


@pytest.mark.parametrize(("case", "weight", "again"), [(0, 1.0, 0.0), (2, 2.0, 0.0), (4, 1.0, 0.1), (6, 2.0, 0.1)])
@pytest.mark.parametrize("name", ["popularity", "gram"])
def test_the_values_of_the_vectors_are_those_of_the_guard(
    vectors: ModuleType, name: str, case: int, weight: float, again: float
) -> None:
    """Equal but for what the guard takes off a norm that is within its bound by rounding alone."""
    users, model = torch.arange(len(vectors.HISTORIES)), vectors.tensors(vectors.SIDE, 0)
    mechanism = DistributedGaussian(clip_norm=1.0, noise_multiplier=6.0, n_min_honest=200)
    blocks = vectors.schema(name, mechanism, diagonal=True, weight=weight, again=again)
    call = Call(0, 0, name, 0, users, Streams.from_seed(0), blocks)
    sent = getattr(vectors.clients(), name)(call, Message({n: model[n] for n in ("head", "shares", "scale")}))
    bound = torch.tensor(share_of(blocks) ** 0.5, dtype=torch.float64)
    sent.scale_(shrink_factors(sent.norms(2), bound))
    dense = sent.materialise(users)
    flat = torch.cat([dense[block].reshape(len(users), -1) for block in blocks], 1)
    uploads = read("vectors/uploading.json")["cases"][case]["uploads"]
    mine = [one["values"] for one in uploads if one["query"] == int(name == "gram")]
    for row, digits in zip(flat.numpy(), mine, strict=True):
        ours = np.frombuffer(bytes.fromhex(digits), "<f4")
        assert np.abs(ours - row).max() <= 2.0**-20 * np.abs(row).max()


def test_a_served_run_recommends_on_the_device_what_python_recommends(
    node: Node, trained: TrainedRun, served: StaticServer
) -> None:
    """Its popularity of the head is of two sums."""
    public = trained.experiment.server.public().shared
    assert trained.experiment.server.constants.again > 0  # type: ignore[attr-defined]
    assert len(public["head"]) > 0
    assert_alike(node, trained, served.address)


def test_a_served_run_with_donors_recommends_on_the_device_what_python_recommends(node: Node, tmp_path: Path) -> None:
    """What donors opened is pooled with the sums; what is published has the same names and kinds."""
    split: Any = {"donors": ["3", "17"]}
    run = privfed.run("private-gram", "synthetic-small", epsilon=8, split=split)
    assert run.decisions["weight of donors in popularity"] > 0
    trained = privfed.load_run(run.save(tmp_path / "run"))
    with StaticServer(PublishedModel.from_run(trained).files, LASTING, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert_alike(node, trained, server.address)
        server.shutdown()
        thread.join()


def assert_alike(node: Node, trained: TrainedRun, address: str) -> None:
    """The same items in the same order; where Python's scores are nearer than rounding, either order is right."""
    ids = [str(item) for item in trained.data.item_ids]
    histories = [ids[:1], ids[5:40:7], ids[100:], [ids[n] for n in (3, 8, 13, 150, 177)]]
    program = (
        "import { from, Model } from './dist/index.js';\n"
        f"const model = await Model.load(from({address!r}));\n"
        f"const lists = {json.dumps(histories)}.map((own) => model.recommend(own, 200));\n"
        "process.stdout.write(JSON.stringify({ version: model.version, epsilon: model.guarantee.epsilon, lists }));\n"
    )
    done = node("--input-type=module", "-e", program)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["epsilon"] == trained.guarantee.epsilon
    for own, mine in zip(histories, answer["lists"], strict=True):
        expected = trained.recommend(history=own, k=200)
        scores = dict(zip(expected["item"].astype(str), expected["score"], strict=True))
        assert [one["item"] for one in mine] == list(scores)
        assert [one["title"] for one in mine] == expected["title"].tolist()
        error = max(abs(one["score"] - scores[one["item"]]) for one in mine)
        assert error <= 2.0**-18 * max(map(abs, scores.values()))


def test_the_compiled_module_is_that_of_its_sources() -> None:
    sources = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (DEVICE / "src").iterdir()}
    assert read("dist/sources.json") == sources, "run npm ci and npm run build in device/"
    compiled = {file.stem for file in (DEVICE / "dist").glob("*.js")}
    assert compiled == {name.removesuffix(".ts") for name in sources}


def test_the_compiler_writes_the_same(node: Node, tmp_path: Path) -> None:
    compiler = DEVICE / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        pytest.skip("TypeScript is not installed: npm ci in device/")
    done = node(compiler, "--outDir", tmp_path)
    assert done.returncode == 0, done.stdout
    written = {file.name: file.read_bytes() for file in tmp_path.glob("*.js")}
    assert written == {file.name: file.read_bytes() for file in (DEVICE / "dist").glob("*.js")}


def test_the_module_is_small_and_needs_nothing_else() -> None:
    whole = b"".join(file.read_bytes() for file in sorted((DEVICE / "dist").glob("*.js")))
    assert len(gzip.compress(whole, 9)) <= LARGEST_BUNDLE
    assert re.findall(rb"from \"(?!\./)", whole) == []
    package = read("package.json")
    assert set(package) & {"dependencies", "peerDependencies", "optionalDependencies"} == set()
    lock = (DEVICE / "package-lock.json").read_text(encoding="utf-8")
    assert re.findall(r"https?://|resolved", lock) == []
    assert shutil.which("node") is None or package["engines"] == {"node": ">=20"}
