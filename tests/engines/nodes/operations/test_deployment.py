"""Units and container of `examples/deployment` are hardened, and start what is there with options that it has."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from privfed.engines.flower import __main__ as command
from privfed.engines.nodes.operations.health import Health, HealthCode
from privfed.engines.nodes.operations.http_endpoint import Endpoint

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "examples" / "deployment"
UNITS = sorted(FOLDER.glob("privfed-*.service"))
NODE, QUADLET, CONTAINERFILE = (
    FOLDER / name for name in ("privfed-node.service", "privfed-node.container", "Containerfile")
)
OURS = ["python", "-m", "privfed.engines.flower"]

HARDENED = {
    "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
    "PrivateDevices": "yes", "ProtectKernelTunables": "yes", "ProtectKernelModules": "yes", "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes", "ProtectClock": "yes", "ProtectHostname": "yes", "ProtectProc": "invisible",
    "CapabilityBoundingSet": "", "AmbientCapabilities": "", "LockPersonality": "yes", "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes", "RestrictSUIDSGID": "yes", "SystemCallArchitectures": "native", "UMask": "0077",
    "StateDirectoryMode": "0700", "Restart": "on-failure", "LimitCORE": "0",
}  # fmt: skip
REPEATED = {"LoadCredential", "Environment", "SystemCallFilter", "Volume"}

Unit = dict[str, dict[str, list[str]]]


def unit(path: Path) -> Unit:
    """A unit file: by section and key, its values."""
    sections: Unit = {}
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
            continue
        key, equals, value = line.partition("=")
        assert equals, line
        current.setdefault(key, []).append(value)
    return sections


def instructions(path: Path) -> list[tuple[str, str]]:
    """A Containerfile: every instruction and what follows it, on one line."""
    text = re.sub(r"(?m)^#.*\n", "", path.read_text())
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def final_stage() -> list[tuple[str, str]]:
    every = instructions(CONTAINERFILE)
    return every[max(place for place, (word, _) in enumerate(every) if word == "FROM") :]


def served(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What our command would serve; a wrong option ends the test."""
    found: list[Any] = []
    monkeypatch.setattr(command, "_serve", lambda *given, **options: found.extend([*given, options]))
    assert command.main(list(arguments)) == 0
    return found


def probe(text: str) -> str:
    """The program of a health check."""
    words = shlex.split(text)
    assert words[:2] == ["python", "-c"]
    return words[2]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_are_hardened(path: Path) -> None:
    service = unit(path)["Service"]
    assert {key: service.get(key) for key in HARDENED} == {key: [value] for key, value in HARDENED.items()}
    assert [key for key, values in service.items() if len(values) > 1 and key not in REPEATED] == []
    assert service["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    assert service.get("DynamicUser") == ["yes"] or service["User"][0] not in {"root", "0"}
    assert service["StateDirectory"] == [path.stem.replace("superlink", "server")]
    assert unit(path)["Install"] == {"WantedBy": ["multi-user.target"]}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_private_keys_are_credentials(path: Path) -> None:
    service = unit(path)["Service"]
    handed = {name for name, _ in (value.split(":") for value in service["LoadCredential"])}
    commands = " ".join([*service["ExecStart"], *service.get("ExecStartPre", [])])
    assert any(name.endswith(".key") for name in handed)
    assert set(re.findall(r"%d/(\S+)", commands)) <= handed
    assert not re.search(r"(?<!%d)/\S*\.key", commands.replace("/var/lib/privfed-node/identity.key", ""))


def test_only_the_supernode_and_the_gateway_speak_to_other_machines() -> None:
    closed = {path.stem for path in UNITS if unit(path)["Service"].get("IPAddressDeny") == ["any"]}
    assert closed == {"privfed-node", "privfed-superlink"}
    assert "--host 127.0.0.1" in unit(FOLDER / "privfed-superlink.service")["Service"]["ExecStart"][0]


def test_the_nodes_unit_starts_our_command(monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(unit(NODE)["Service"]["ExecStart"][0])
    assert [Path(program).name, *arguments[:2]] == OURS
    folder, socket, address, options = served(arguments[2:], monkeypatch)
    assert (folder, address, options) == (Path("/var/lib/privfed-node"), "127.0.0.1:9400", {"group": True})
    assert unit(NODE)["Service"]["RuntimeDirectory"] == [socket.parent.name]
    assert str(socket) in unit(FOLDER / "privfed-supernode.service")["Service"]["ExecStart"][0]


def test_the_gateways_unit_starts_our_command(monkeypatch: pytest.MonkeyPatch) -> None:
    service, found = unit(FOLDER / "privfed-gateway.service")["Service"], list[Any]()
    program, *arguments = shlex.split(service["ExecStart"][0])
    assert [Path(program).name, *arguments[:2]] == OURS
    monkeypatch.setattr(command, "_gateway", found.append)
    assert command.main(arguments[2:]) == 0
    [given] = found
    superlink = shlex.split(unit(FOLDER / "privfed-superlink.service")["Service"]["ExecStart"][0])
    assert given.superlink == f"127.0.0.1:{superlink[superlink.index('--port') + 1]}"
    assert [path.name for path in given.nodes] == service["StateDirectory"]
    supernode = shlex.split(unit(FOLDER / "privfed-supernode.service")["Service"]["ExecStart"][0])
    assert int(supernode[supernode.index("--superlink") + 1].rpartition(":")[2]) == given.listen[1]


@pytest.mark.process
@pytest.mark.parametrize("name", ["privfed-supernode", "privfed-superlink"])
def test_flowers_commands_have_the_options_of_the_units(name: str) -> None:
    program, *arguments = shlex.split(unit(FOLDER / f"{name}.service")["Service"]["ExecStart"][0])
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    installed = shutil.which(Path(program).name, path=beside)
    if installed is None:
        pytest.skip("flwr is not installed: pip install 'privfed[flower]'")
    shown = subprocess.run([installed, "--help"], capture_output=True, text=True, check=True).stdout
    options = {word for word in arguments if word.startswith("--")}
    assert options
    assert options <= set(re.findall(r"--[a-z-]+", shown))


@pytest.mark.process
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_the_units_and_finds_little_exposed(path: Path, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    here = tmp_path / path.name
    here.write_text(re.sub(r"/opt/privfed/bin/[\w-]+", "/bin/true", path.read_text()))
    verified = subprocess.run([tool, "verify", "--man=no", str(here)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = [tool, "security", "--offline=true", "--threshold=20", "--no-pager", str(here)]
    exposure = subprocess.run(judged, capture_output=True, text=True, check=False)
    if "unrecognized option" in exposure.stderr:
        pytest.skip("this systemd-analyze cannot judge a file")
    assert exposure.returncode == 0, exposure.stdout[-500:]


def test_the_container_runs_without_root_and_without_what_built_it() -> None:
    bases = [rest.split()[0] for word, rest in instructions(CONTAINERFILE) if word == "FROM"]
    assert len(bases) == 2
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base) for base in bases)
    final = final_stage()
    users = [rest for word, rest in final if word == "USER"]
    assert users == ["10001:10001"]
    assert [word for word, _ in final].index("USER") < [word for word, _ in final].index("ENTRYPOINT")
    assert [rest for word, rest in final if word in {"COPY", "ADD"}] == ["--from=build /opt/privfed /opt/privfed"]
    ran = " ".join(rest for word, rest in final if word == "RUN")
    assert "pip uninstall --yes" in ran
    assert not re.search(r"pip install|apt|curl|wget|gcc|git ", ran)


def test_the_container_starts_our_command(monkeypatch: pytest.MonkeyPatch) -> None:
    final = dict(final_stage())
    assert json.loads(final["ENTRYPOINT"]) == OURS
    folder, socket, address, options = served(json.loads(final["CMD"]), monkeypatch)
    assert (folder, address, options) == (Path("/var/lib/privfed"), "127.0.0.1:9400", {"group": True})
    assert {str(folder), str(socket.parent)} == set(json.loads(final["VOLUME"]))


def test_the_quadlet_leaves_nothing_to_write_to_but_the_volumes() -> None:
    container = unit(QUADLET)["Container"]
    for key, value in {
        "ReadOnly": "true", "DropCapability": "all", "NoNewPrivileges": "true", "User": "10001", "Network": "none"
    }.items():  # fmt: skip
        assert container[key] == [value]
    assert {value.split(":")[1] for value in container["Volume"]} == {"/var/lib/privfed", "/run/privfed"}


class Process:
    def __init__(self, reason: HealthCode | None) -> None:
        self.reason = reason

    def health(self) -> Health:
        return Health("node", self.reason, {})

    def metrics(self) -> str:
        return ""


def health_checks() -> dict[str, str]:
    check = dict(final_stage())["HEALTHCHECK"].partition("CMD ")[2]
    return {
        "Containerfile": json.loads(check)[2],
        "quadlet": probe(unit(QUADLET)["Container"]["HealthCmd"][0]),
    }


@pytest.mark.parametrize("name", ["Containerfile", "quadlet"])
@pytest.mark.parametrize(("reason", "code"), [(None, 0), (HealthCode.LEDGER_REFUSED, 1)])
def test_the_health_check_tells_health(name: str, reason: HealthCode | None, code: int) -> None:
    endpoint = Endpoint(Process(reason), "0")
    program = health_checks()[name]
    assert "9400" in program
    try:
        with pytest.raises(SystemExit) as ended:
            exec(program.replace("9400", str(endpoint.port)), {})
    finally:
        endpoint.close()
    assert int(ended.value.code or 0) == code


@pytest.mark.process
def test_hadolint_finds_nothing() -> None:
    tool = shutil.which("hadolint")
    if tool is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([tool, str(CONTAINERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
@pytest.mark.process
def test_the_container_is_built_and_says_what_it_can_do() -> None:
    tools = [tool for tool in map(shutil.which, ("podman", "docker")) if tool]
    tools = [tool for tool in tools if subprocess.run([tool, "info"], capture_output=True, check=False).returncode == 0]
    if not tools:
        pytest.skip("neither podman nor docker is installed and running")
    build = [tools[0], "build", "--file", str(CONTAINERFILE), "--tag", "privfed:test", str(ROOT)]
    subprocess.run(build, check=True)
    shown = subprocess.run(
        [tools[0], "run", "--rm", "--read-only", "--cap-drop=all", "--network=none", "privfed:test", "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "node-key" in shown
