"""The page on messages of devices says what both sides' code does: sizes, names, versions, sentences."""

import re
from pathlib import Path

import pytest

from privfed.api.publishing import DOSSIERS, LATEST, MANIFEST, MODELS
from privfed.api.publishing import FORMAT as FILES_FORMAT
from privfed.cli.static_server import FOREVER, SHORTLY
from privfed.dossier.manifest import SIGNATURES
from privfed.engines.nodes.devices import messages
from privfed.engines.nodes.devices.device_federation import RUN_BYTES
from privfed.engines.nodes.devices.terms import FORMAT, STEPS, DeviceQuery, announced_terms
from privfed.engines.nodes.http_transport import FRAME, MAGIC, STAGE_BYTES, VERSION, HttpTransport
from privfed.guards.ring_code import RingCode
from privfed.methods.private_gram.queries import AGAIN, GRAM
from privfed.methods.shared.popular_head import POPULARITY, unit_block
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from privfed.updates import packed_size
from secure_agg.masking.terms import PROTOCOL_VERSION
from secure_agg.primitives.keys import SIGNATURE_BYTES

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "device_messages.md").read_text(encoding="utf-8")
TYPESCRIPT = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "device" / "src").glob("*.ts")}
NODES = ROOT / "privfed" / "engines" / "nodes"
PYTHON = "".join(
    (NODES / name).read_text() for name in ("devices/messages.py", "devices/device_federation.py", "party.py")
)
SIDE = 6
MECHANISM = DistributedGaussian(clip_norm=1.0, noise_multiplier=4.0, n_min_honest=3)


def table(name: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table of the page."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", PAGE, re.DOTALL)
    assert found is not None
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return head, rows


def names(cells: list[list[str]], column: int = 0) -> list[str]:
    """What stands in a column as code."""
    return [name for row in cells for name in re.findall(r"`([^`]+)`", row[column])]


def queries() -> list[DeviceQuery]:
    """Both of private-gram, the second with everything that one can have."""
    gram = {GRAM: unit_block((packed_size(SIDE, diagonal=True),), 1.0, 0.5), AGAIN: unit_block((SIDE, 1), 1.0, 0.25)}
    popularity = {POPULARITY: unit_block((20, 1), 1.0, 0.25)}
    schemas = ((POPULARITY, popularity), (GRAM, gram))
    return [DeviceQuery(step, RingCode(MECHANISM, schema, 5), diagonal=True) for step, schema in schemas]


@pytest.mark.parametrize(
    ("name", "magic", "version", "fixed", "signed"),
    [
        ("PFHT", MAGIC, VERSION, FRAME.size, 0),
        ("PFDM request", messages.MAGIC, messages.VERSION, messages._REQUEST.size, SIGNATURE_BYTES),
        ("PFDM reply", messages.MAGIC, messages.VERSION, messages._REPLY.size, SIGNATURE_BYTES),
    ],
)
def test_layouts_are_those_of_the_code(name: str, magic: bytes, version: int, fixed: int, signed: int) -> None:
    head, rows = table(name)
    assert head[0].endswith(f"version {version}")
    assert rows[0] == [f"`{magic.decode()}`", str(len(magic))]
    sizes = [int(size) for _, size in rows if size != "the rest"]
    assert sum(sizes) == fixed + signed
    assert [size for what, size in rows if what.startswith("signature")] == [str(signed)] * bool(signed)
    assert all(size == str(STAGE_BYTES) for what, size in rows if what.startswith("stage"))


def test_the_module_reads_the_same_layouts() -> None:
    constants = re.search(
        r"const \[VERSION, HEADER, STAGE, RUN, .*\] = \[(\d+), (\d+), (\d+), (\d+),", TYPESCRIPT["participant"]
    )
    assert constants is not None
    assert [int(one) for one in constants.groups()] == [VERSION, FRAME.size, STAGE_BYTES, RUN_BYTES]
    assert f'const MAGIC = "{MAGIC.hex()}"' in TYPESCRIPT["participant"]
    signed = re.search(r'\[ascii\("(\w+)"\), (\d+), \d+, (\d+), (\d+), (\d+)\]', TYPESCRIPT["federation"])
    assert signed is not None
    assert signed[1] == messages.MAGIC.decode()
    expected = [messages.VERSION, SIGNATURE_BYTES, messages.STAGE_BYTES, messages._REQUEST.size]
    assert [int(one) for one in signed.groups()[1:]] == expected


def test_fields_are_those_that_are_sent_and_that_devices_read() -> None:
    asked = queries()
    terms = announced_terms(MECHANISM, asked, delta=1e-6, cohort=5)
    head, rows = table("terms")
    assert head[0] == f"terms, format {FORMAT}"
    assert sorted({*names(rows), "format"}) == sorted(terms)
    assert names(rows, 1)[: len(STEPS)] == list(STEPS)
    _, rows = table("queries")
    assert sorted(names(rows)) == sorted(asked[1].terms)
    assert names(rows[:1], 1) == [step for steps in STEPS.values() for step in steps]
    module = TYPESCRIPT["terms"]
    for kind, fields in (("QueryTerms", asked[1].terms), ("Terms", terms)):
        declared = re.search(rf"export type {kind} = {{\n(.*?)\n}};", module, re.DOTALL)
        assert declared is not None
        assert set(re.findall(r"^  (\w+)\??:", declared[1], re.MULTILINE)) == set(fields)
    steps = dict(re.findall(r'"?([\w-]+)"?: \[((?:"\w+"(?:, )?)+)\]', re.search(r"const STEPS = .*", module)[0]))  # type: ignore[index]
    assert {name: re.findall(r"\w+", those) for name, those in steps.items()} == {m: list(s) for m, s in STEPS.items()}


def test_contents_are_those_that_devices_answer() -> None:
    module = TYPESCRIPT["participant"]
    _, rows = table("contents")
    assert names(rows) == re.findall(r'stage === "(\w+)"', module)
    assert f"version {PROTOCOL_VERSION}" in rows[2][1]
    assert re.findall(r"`(\w+)`", rows[0][1]) == re.findall(
        r'"(\w+)"', re.search(r'"the announcement", \[(.*?)\]', module)[1]
    )  # type: ignore[index]
    query = re.search(r'"the query", \[(.*?)\], \[(.*?)\]', module)
    assert query is not None
    assert re.findall(r"`(\w+)`", rows[1][1]) == re.findall(r'"(\w+)"', query[1] + query[2])
    assert tuple(re.findall(r'"(\w+)"', query[2])) == queries()[1].message
    _, rows = table("fields")
    assert rows[0] == ["`run`, `masking`", f"{RUN_BYTES} bytes"]
    assert set(names(rows[1:])) == set(queries()[1].message)


def test_calls_are_answered_as_the_page_says() -> None:
    transport = HttpTransport({0: "t" * 32})
    transport.close()
    _, rows = table("calls")
    assert f"{transport.max_reply} bytes" in rows[4][0]
    served = (NODES / "http_transport.py").read_text()
    said = {
        "200": "HTTPStatus.OK",
        "204": "NO_CONTENT",
        "410": "GONE",
        "401": "UNAUTHORIZED",
        "404": "NOT_FOUND",
        "413": "TOO_LARGE",
    }
    assert {code for row in rows for code in re.findall(r"\b[2-4]\d\d\b", row[1])} == set(said)
    assert all(status in served for status in said.values())


def test_sentences_are_those_of_the_code() -> None:
    whole = "".join(TYPESCRIPT.values()) + PYTHON
    _, rows = table("refused")
    missing = [text for _, said in rows for text in said.split("; ") if text not in whole]
    assert missing == []


def test_published_files_are_those_that_are_written_and_kept_as_long() -> None:
    head, rows = table("files")
    assert head[0] == f"file, format {FILES_FORMAT}"
    assert rows[0][0] == f"`{LATEST}`"
    ages = {names([row])[0]: f"max-age={row[2]}" for row in rows}
    lasting = {name for name, age in ages.items() if age in FOREVER}
    assert {name for name in ages if name.startswith((f"{MODELS}/", f"{DOSSIERS}/"))} - lasting == {
        f"{DOSSIERS}/DIGEST/{SIGNATURES}/"
    }
    assert all(age in SHORTLY for name, age in ages.items() if name not in lasting)
    assert f"{MODELS}/VERSION/{MANIFEST}" in lasting
    written = re.findall(r'"(\w+\.json)": _json', (ROOT / "privfed" / "api" / "publishing.py").read_text())
    assert {f"{MODELS}/VERSION/{name}" for name in written} <= lasting
