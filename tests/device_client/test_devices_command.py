"""`privfed federation devices`: a run over devices in node, from keys to a model that is served."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import privfed
from privfed.api.publishing import LATEST, MODELS, PublishedModel
from privfed.cli import app
from privfed.engines.nodes.administration import make_identity
from privfed.engines.nodes.devices.invitations import INVITATIONS, TOKENS
from privfed.engines.nodes.devices.run import require_devices
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.federation_file import SERVER_SEAT, FederationFile, Organisation
from privfed.engines.nodes.party import Party
from privfed.privacy import Guarantee
from secure_agg.primitives.keys import Identity
from tests.device_client.aggregator import DEVICE, Device

Node = Callable[..., "subprocess.CompletedProcess[str]"]
PEOPLE, ITEMS = 8, 60
POLICY = {"epsilonPerYear": 50, "deltaPerYear": 0.2, "leastCohort": PEOPLE, "leastHonest": 5}
HEAD = ("--items", "items.csv", "--epsilon", "20", "--honest", "5", "--port", "0", "--wait", "30", "--timeout", "20")


def call(*words: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def crowd() -> Iterator[Device]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    process = subprocess.Popen(
        [program, "join.mjs", str(PEOPLE)],
        cwd=DEVICE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        yield Device(process)
        process.kill()


def founded(folder: Path, keys: list[bytes]) -> bytes:
    """A server's folder with a federation of these devices, and a catalogue beside it; returns the operator's key."""
    server, operator = make_identity(folder / "server"), make_identity(folder / "operator")
    federation = FederationFile(
        name="people", version=1, server=server.public.hex(), population=len(keys), items=ITEMS,
        organisations=tuple(
            Organisation(name=f"device-{seat}", key=key.hex(), users=str(seat)) for seat, key in enumerate(keys)
        ),
    )  # fmt: skip
    (folder / "federation.toml").write_text(federation.to_toml())
    lines = [f"i{n},Title {n} ({1990 + n % 20}),{'AB'[n % 2]}" for n in range(ITEMS)]
    (folder / "items.csv").write_text("\n".join(["item,title,genres", *lines]) + "\n")
    assert call("federation", "sign", folder, "--key", folder / "operator" / "identity.key").exit_code == 0
    assert (
        call("federation", "install", folder, folder / "server", "--operator", folder / "operator.pub").exit_code == 0
    )
    return operator.public


def told(folder: Path, crowd: Device, operator: bytes) -> None:
    """Give every device its invitation, as soon as it is written."""
    place = folder / "server" / INVITATIONS
    end = time.monotonic() + 30
    while not (place / f"device-{PEOPLE - 1}.json").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.2)
    rng = np.random.default_rng(0)
    for seat in range(PEOPLE):
        history = rng.choice(ITEMS, 12, replace=False).tolist()
        invitation = json.loads((place / f"device-{seat}.json").read_text())
        crowd.tell(policy=POLICY, history=history, operator=operator.hex(), **invitation)


@pytest.mark.parametrize("method", ["popularity", "private-gram"])
def test_devices_train_a_model_that_is_published_filed_and_loaded_and_charge_themselves(
    crowd: Device, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    keys = [crowd.public, *(bytes.fromhex(crowd.said.get(timeout=30).strip()) for _ in range(PEOPLE - 1))]
    operator = founded(tmp_path, keys)
    monkeypatch.chdir(tmp_path)
    handing = threading.Thread(target=told, args=(tmp_path, crowd, operator))
    handing.start()
    done = call("federation", "devices", "server", *HEAD, "--method", method, "--out", "run", "--json")
    handing.join()
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["joined"], document["incidents"]) == (PEOPLE, [])
    model = PublishedModel.read(tmp_path / "run" / "public")
    assert model.version == document["version"]
    inside = {path.rpartition("/")[2]: content for path, content in model.files.items()}
    guarantee = Guarantee.model_validate_json(inside["guarantee.json"])
    assert guarantee.model_dump(mode="json") == document["guarantee"]
    assert 0 < guarantee.epsilon <= 20
    assert json.loads(inside["items.json"])["ids"] == [f"i{n}" for n in range(ITEMS)]
    assert (tmp_path / "server" / TOKENS).stat().st_mode & 0o077 == 0
    spent = [one["ledger"] for one in crowd.end() if "ledger" in one]
    assert [one["runs"] for one in spent] == [1] * PEOPLE
    own = document["device_epsilon"]
    assert guarantee.epsilon <= own <= 1.5 * guarantee.epsilon
    assert [one["epsilon"] for one in spent] == pytest.approx([own] * PEOPLE, rel=1e-9)
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    steps = {"popularity": ["count"], "private-gram": ["popularity", "gram"]}[method]
    assert [one["step"] for one in lines if "step" in one] == steps
    filed = call("dossier", "make", "run", "--out", "dossier", "--no-pdf", "--json")
    assert filed.exit_code == 0, filed.stderr
    assert json.loads(filed.stdout)["about"] == f"{method} over 8 of 8 devices of people, 8 or more in every sum"
    assert call("serve", "run", "--export", "out", "--dossier", "dossier").exit_code == 0
    latest = json.loads((tmp_path / "out" / LATEST).read_text())
    assert latest == json.loads(model.files[LATEST]) | {"dossier": latest["dossier"]}
    assert (tmp_path / "out" / "dossiers" / latest["dossier"] / "index.html").exists()
    assert_loaded_as_on_a_device(tmp_path, node, method)
    manifest = tmp_path / "run" / "public" / MODELS / model.version / "card.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    changed = call("serve", "run", "--export", "other")
    assert (changed.exit_code, "is not what its version names" in changed.stderr) == (2, True)


def assert_loaded_as_on_a_device(folder: Path, node: Node, method: str) -> None:
    """What `load_run` recommends is what a device does, but for the last bits of a sum; all else is refused."""
    run = privfed.load_run(folder / "run")
    assert str(run).startswith(f"{method} over 8 of 8 devices of people\nPrivacy  epsilon ")
    histories = [["i3"], ["i5", "i12", "i40"], [f"i{n}" for n in range(0, ITEMS, 2)]]
    program = (
        "import { readFileSync } from 'node:fs';\nimport { Model } from './dist/index.js';\n"
        f"const file = (path) => new Uint8Array(readFileSync({str(folder / 'out')!r} + '/' + path));\n"
        "const model = await Model.load(async (path) => file(path));\n"
        f"const lists = {json.dumps(histories)}.map((own) => model.recommend(own, 60));\n"
        "process.stdout.write(JSON.stringify({ lists, dossier: model.dossier }));\n"
    )
    done = node("--input-type=module", "-e", program)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (folder / "out" / answer["dossier"]).exists()
    for own, mine in zip(histories, answer["lists"], strict=True):
        expected = run.recommend(history=own, k=60)
        # Where two scores differ by less than rounding does, either order is right.
        scores = dict(zip(expected["item"], expected["score"], strict=True))
        titles = dict(zip(expected["item"], expected["title"], strict=True))
        assert {one["item"]: one["title"] for one in mine} == titles
        found = {one["item"]: one["score"] for one in mine}
        assert found == pytest.approx(scores, abs=2.0**-18 * max(map(abs, scores.values())))
    with pytest.raises(ValueError, match="nothing was measured"):
        print(run.metrics)
    with pytest.raises(ValueError, match="knows no user"):
        run.recommend(3)
    again = run.save(folder / "again")
    assert privfed.load_run(again).guarantee == run.guarantee
    record = json.loads((again / "devices.json").read_text())
    (again / "devices.json").write_text(json.dumps(record | {"ended": None}))
    with pytest.raises(ValueError, match="was aborted and published no model"):
        privfed.load_run(again)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation of people none of whom is there."""
    folder = tmp_path_factory.mktemp("shop")
    founded(folder, [Identity.generate().public for _ in range(PEOPLE)])
    return folder


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--wait", "0"), "0 of 8 devices called"),
        (("--histories", "auto"), "write long or short"),
        (("--method", "ease"), "devices compute private-gram or popularity"),
        (("--items", "few.csv"), "has 2 items, and the federation file 60"),
        (("--items", "twice.csv"), "names the item i1 twice"),
        (("--items", "none.csv"), "no csv of items"),
        (("--items", "missing.csv"), "missing.csv"),
        (("--honest", "8"), "needs rounds of 9 clients"),
        (("--epsilon", "-1"), "epsilon"),
        (("--out", "."), "is not empty"),
    ],
)
def test_what_no_run_can_be_made_of_is_refused_in_a_sentence(
    shop: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(shop)
    for name, text in (("few", "item\na\nb\n"), ("twice", "item\ni1\ni1\n"), ("none", "")):
        Path(f"{name}.csv").write_text(text)
    shutil.rmtree("out", ignore_errors=True)
    done = call("federation", "devices", "server", *HEAD, "--out", "out", *words)
    assert done.exit_code == 2, done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert why in done.stderr


def test_a_federation_of_organisations_or_another_party_is_refused(shop: Path) -> None:
    party = Party.load(shop / "server")
    first, *others = party.federation.organisations
    two = party.federation.model_copy(
        update={"population": PEOPLE + 1, "organisations": (first.model_copy(update={"users": "0,8"}), *others)}
    )
    with pytest.raises(NodesError, match=r'device-0 hosts the users 0,8, and .* write users = "0"'):
        require_devices(Party(two, party.identity, SERVER_SEAT))
    with pytest.raises(NodesError, match="this is the folder of device-3"):
        require_devices(Party(party.federation, party.identity, 3))
    allowed = party.federation.model_copy(update={"mechanisms": ("secure_sum",)})
    with pytest.raises(NodesError, match="allows secure_sum"):
        require_devices(Party(allowed, party.identity, SERVER_SEAT))
