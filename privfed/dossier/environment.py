"""What runs here: installed distributions as a CycloneDX bill of materials, privfed's own files, and which tests ran.

A wheel leaves its RECORD behind when it is installed: the list of all its files with their digests. The SHA-256 of
that list therefore stands for every file of the wheel as it was installed. It is not the digest of the wheel's archive,
which an installation does not keep; the bill says so in a property of every component.
"""

import hashlib
import platform
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import privfed
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import Citation
from privfed.dossier.reading import FileRead, read

PACKAGES = ("privfed", "attacks", "secure_agg")
SBOM, JUNIT = "sbom.cdx.json", "junit.xml"
_HASHED = "SHA-256 of the RECORD of the installed distribution, which lists every file with its digest"


@dataclass(frozen=True, slots=True)
class JunitCounts:
    """What a test run came to, by its JUnit report.

    Attributes:
        tests: that ran or were skipped.
        failures: that failed, or broke.
        skipped: that were left out.
        source: the report.
    """

    tests: int
    failures: int
    skipped: int
    source: Citation


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a dossier was made.

    Attributes:
        python: version.
        system: operating system and processor.
        privfed: version.
        own_files: number of privfed's own source files.
        own_digest: SHA-256 over all of them.
        components: number of installed distributions.
        tests: what the given test report says; None where none was given.
        source: the bill of materials.
    """

    python: str
    system: str
    privfed: str
    own_files: int
    own_digest: str
    components: int
    tests: JunitCounts | None
    source: Citation


def bill_of_materials(installed: Iterable[Distribution] | None = None) -> dict[str, Any]:
    """CycloneDX 1.6 of what is installed, in the order of the names; equal installations have equal bills."""
    found = {one.name.lower(): one for one in (distributions() if installed is None else installed) if one.name}
    components = [_component(one) for _, one in sorted(found.items())]
    seed = "".join(f"{one['purl']} {one.get('hashes')}" for one in components)
    number, digest = own_source()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed + digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "privfed",
                "version": privfed.__version__,
                "bom-ref": "privfed",
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "properties": [
                    {"name": "privfed:hash-is", "value": f"SHA-256 over names and digests of {number} source files"}
                ],
            },
            "properties": [
                {"name": "privfed:python", "value": platform.python_version()},
                {"name": "privfed:system", "value": f"{platform.system()} {platform.machine()}"},
            ],
        },
        "components": components,
    }


def _component(one: Distribution) -> dict[str, Any]:
    name, version, record = re.sub(r"[-_.]+", "-", one.name).lower(), one.version, one.read_text("RECORD")
    component: dict[str, Any] = {
        "type": "library",
        "name": one.name,
        "version": version,
        "bom-ref": f"{name}@{version}",
        "purl": f"pkg:pypi/{name}@{version}",
    }
    if record is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(record.encode()).hexdigest()}]
        component["properties"] = [{"name": "privfed:hash-is", "value": _HASHED}]
    return component


@cache
def own_source() -> tuple[int, str]:
    """Number of the project's own source files, and one digest over their names and digests."""
    lines = sorted(line for package in PACKAGES for line in _digests(files(package), package))
    return len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _digests(folder: Traversable, name: str) -> Iterable[str]:
    for one in folder.iterdir():
        if one.is_dir() and one.name != "__pycache__":
            yield from _digests(one, f"{name}/{one.name}")
        elif one.name.endswith((".py", ".html", ".css", ".js", ".json")):
            yield f"{name}/{one.name} {hashlib.sha256(one.read_bytes()).hexdigest()}"


def environment(bill: dict[str, Any], source: Citation, tests: Path | None = None) -> Environment:
    """Where a dossier is made, by its bill of materials.

    Args:
        bill: of `bill_of_materials`.
        source: where it stands in the dossier.
        tests: JUnit report of a test run.

    Raises:
        DossierError: the test report cannot be read.
    """
    number, digest = own_source()
    return Environment(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        privfed=privfed.__version__,
        own_files=number,
        own_digest=digest,
        components=len(bill["components"]),
        tests=None if tests is None else junit_counts(read(tests.parent, tests.name)),
        source=source,
    )


def junit_counts(file: FileRead) -> JunitCounts:
    """The counts of a JUnit report.

    Raises:
        DossierError: it is none.
    """
    if b"<!DOCTYPE" in file.content or b"<!ENTITY" in file.content:
        raise DossierError(
            f"{file.name} declares entities, which no JUnit report does: give the file that pytest wrote"
        )
    try:
        root = ElementTree.fromstring(file.content)  # noqa: S314 - entities are refused above
    except ElementTree.ParseError as error:
        raise DossierError(f"{file.name} is no JUnit report ({error}): give the file that pytest wrote") from error
    cases = list(root.iter("testcase"))
    if not cases:
        raise DossierError(f"{file.name} holds no test: give the file of 'pytest --junitxml FILE'")
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    key = "testcase, failure, error, skipped"
    return JunitCounts(len(cases), failed, skipped, Citation(JUNIT, key, file.sha256))
