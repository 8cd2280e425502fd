"""A node against its server: a server that lies under its own key, and strangers.

Every request of two honest runs side by side is kept with the node's folder as it was before. A trial puts the folder
back, says some lies, and then the honest request, which must be answered where no lie was accepted.
"""

import copy
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.privacy.fuzz_nodes.drafts import BENDS, Draft, bound
from benchmarks.privacy.fuzz_nodes.federations import SmallFederation
from benchmarks.privacy.fuzz_nodes.findings import MOST_BYTES, Findings, Watch, measured
from benchmarks.privacy.fuzz_secure_agg import mutate
from privfed.engines.nodes import codec
from privfed.engines.nodes.errors import MessageError, RefusalCode
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.queries import MEASURE
from privfed.engines.nodes.transport import NodeId
from secure_agg.primitives.keys import SIGNATURE_BYTES

SEAT = 0
SENDING = ("train.clear", "train.input")
MOST_LIES = 4
LONGEST_REASON = 2000
THEIR_OWN = ("perform", "begin_query", "sums_of")
"""Where the method's own code runs on tensors of the server, and may fail on them."""

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Scene:
    """An honest request, and the node's folder before it."""

    stage: str
    frame: bytes
    files: Files

    @property
    def draft(self) -> Draft:
        """Its message."""
        return Draft.of(self.frame[:-SIGNATURE_BYTES])


class Recording(InProcess):
    """Keeps what one node is sent."""

    def __init__(self, federation: SmallFederation) -> None:
        super().__init__(federation.nodes)
        self._folder = federation.folder / f"node{SEAT}"
        self.scenes: list[Scene] = []

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Pass everything on."""
        if SEAT in requests:
            self.scenes.append(Scene(stage, requests[SEAT], files_in(self._folder)))
        return super().exchange(stage, requests, timeout)


def files_in(folder: Path) -> Files:
    """All files of a node, but its lock."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def put_back(folder: Path, files: Files) -> None:
    """Make a folder hold these files, and no others."""
    now = files_in(folder)
    for name in now.keys() - files.keys():
        (folder / name).unlink()
    for name, data in files.items():
        if now.get(name) != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


class NodeTarget:
    """One node of a federation.

    Args:
        name: of the federation.
        federation: whose node it is.
        findings: where all is counted.
        watch: of the log.
    """

    def __init__(self, name: str, federation: SmallFederation, findings: Findings, watch: Watch) -> None:
        self.name, self._federation, self._findings, self._watch = name, federation, findings, watch
        self._node, self._folder = federation.nodes[SEAT], federation.folder / f"node{SEAT}"
        self._scenes = self._recorded()
        self._drafts = [scene.draft for scene in self._scenes]
        self._frames = [scene.frame for scene in self._scenes]
        self._counter = 0
        self._answered: dict[tuple[Any, ...], bytes] = {}

    def _recorded(self) -> list[Scene]:
        recording = Recording(self._federation)
        runs = [self._federation.remote(recording) for _ in range(2)]
        for t in range(self._federation.config.rounds):
            for remote, server in runs:
                if not remote.run(server, t):
                    raise AssertionError(remote.abort_reason, remote.incidents)
                if not self._federation.setting.measured:
                    remote.measure(server.public(), t, ("valid",))
        for remote, server in runs:
            if self._federation.setting.measured and not self._federation.measure(remote, server):
                raise AssertionError(remote.abort_reason, remote.incidents)
            remote.finish()
        return recording.scenes

    def trial(self, rng: random.Random) -> None:
        """Some lies about one honest request, then the request."""
        scene = rng.choice(self._scenes)
        honest = scene.draft
        self._begin(scene)
        self._counter = int(honest.fields["address"]["counter"])
        untouched = True
        for _ in range(rng.choice((1, 1, 2, MOST_LIES))):
            what, stage, frame = self._lie(rng, scene, honest)
            untouched &= self._say(what, stage, frame) not in (None, RefusalCode.ABORTED_ROUND)
        if untouched or rng.random() < 0.5:
            frame = self._framed(honest.copy())
            refused = self._say("honest", scene.stage, frame)
            if untouched and refused is not None:
                told = f"node, an honest request of {scene.stage} is refused ({refused}) after lies that were"
                self._findings.defect(told, self._case("", scene.stage, frame))

    def _begin(self, scene: Scene) -> None:
        put_back(self._folder, scene.files)
        self._node.state._memories.clear()
        self._node.state.forget()
        self._answered.clear()

    def _lie(self, rng: random.Random, scene: Scene, honest: Draft) -> tuple[str, str, bytes]:
        """What kind of lie, as which stage it comes, and the frame."""
        kind, stage = rng.random(), scene.stage
        if kind < 0.08:
            return "stranger", stage, mutate(rng, scene.frame, self._frames)
        if kind < 0.14:
            return "bytes, signed", stage, self._signed(mutate(rng, scene.frame[:-SIGNATURE_BYTES], self._frames))
        if kind < 0.18:
            return "replay", *self._replayed(rng)
        draft, name = honest.copy(), rng.choice(list(BENDS))
        if kind < 0.35:
            draft, stage, name = self._elsewhere(rng, honest)
        elif kind < 0.42:
            stage = rng.choice(self._scenes).stage
            draft.fields["address"]["stage"], name = stage, "another stage"
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            try:
                BENDS.get(name, BENDS[rng.choice(list(BENDS))])(rng, draft, self._drafts)
            except (TypeError, KeyError, IndexError, ValueError):  # the draft is bent beyond this
                break
        if rng.random() < 0.7:
            bound(draft)
        return name, stage, self._framed(draft, renewed=rng.random() < 0.9)

    def _elsewhere(self, rng: random.Random, honest: Draft) -> tuple[Draft, str, str]:
        """A message of another moment or run, with the nonce of this one."""
        at = rng.randrange(len(self._scenes))
        draft = self._drafts[at].copy()
        mine, here = draft.fields["address"], honest.fields["address"]
        name = "another moment" if mine["run"] == here["run"] else "another run"
        if rng.random() < 0.8:
            draft.fields["receipt"] = copy.deepcopy(honest.fields.get("receipt"))
        record = self._folder / "state" / mine["run"] / "record.json"
        if mine["nonce"] and record.exists():
            mine["nonce"] = json.loads(record.read_bytes())["nonce"]
        return draft, self._scenes[at].stage, name

    def _replayed(self, rng: random.Random) -> tuple[str, bytes]:
        scene = rng.choice(self._scenes)
        return scene.stage, scene.frame

    def _framed(self, draft: Draft, *, renewed: bool = True) -> bytes:
        """A message as the server signs it, mostly with a counter that rises."""
        address = draft.fields.get("address")
        if renewed and isinstance(address, dict) and isinstance(address.get("counter"), int):
            if 0 <= address["counter"] < 2**62:
                self._counter += 1
                address["counter"] = self._counter
            else:
                self._counter = max(self._counter, 0)
        return self._signed(draft.encode())

    def _signed(self, message: bytes) -> bytes:
        return self._federation.server.frame("request", message)

    # What must hold --------------------------------------------------------------------------------------------------

    def _say(self, what: str, stage: str, frame: bytes) -> str | None:
        """Give the node a message and check all that must hold; returns the code where it was refused."""
        before = files_in(self._folder)

        def case() -> str:
            return self._case(what, stage, frame)

        with measured(self._findings, len(frame), MOST_BYTES, case):
            try:
                reply = self._node.handle(stage, frame)
            except Exception as error:
                self._findings.defect(f"the node raises {type(error).__name__}", f"{error!r}: {case()}")
                return "raised"
        after = files_in(self._folder)
        wrong, failed = self._watch.taken()
        try:
            packet = codec.answer(self._federation.server.unframe("reply", reply, SEAT), frame)
        except MessageError as error:
            self._findings.defect("the node's reply is none", f"{error}: {case()}")
            return "none"
        refused, code = packet["refused"], str(packet.fields.get("code"))
        outcome = "answered" if refused is None else code
        self._findings.counts["node", self.name, what, outcome] += 1
        problems = [*wrong, *self._about(refused, code, reply), *self._about_files(stage, frame, packet, before, after)]
        for problem in problems:
            self._findings.defect(f"node, {self.name}: {problem}", f"{refused!r} {case()}")
        for traceback in failed:
            last = traceback.strip().splitlines()[-1]
            if not any(f"in {name}" in traceback for name in THEIR_OWN):
                self._findings.defect(f"node, {stage}, fails: {last}", f"{traceback}\n{case()}")
        return None if refused is None else code

    def _about(self, refused: Any, code: str, reply: bytes) -> list[str]:
        """What is wrong with a reply."""
        problems = []
        if refused is not None and code not in list(RefusalCode):
            problems.append("a refusal without a code")
        if str(self._federation.folder).encode() in reply or self._federation.folder.name.encode() in reply:
            problems.append("a reply names a path of the disk")
        if refused is not None and len(refused) > LONGEST_REASON:
            problems.append("a refusal that is too long")
        return problems

    def _about_files(self, stage: str, frame: bytes, packet: Any, before: Files, after: Files) -> list[str]:
        """What is wrong with what the node keeps now."""
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        charged = _entries(after) - _entries(before)
        code = packet.fields.get("code")
        if packet["refused"] is not None:
            allowed = {name for name in changed if code == "aborted_round" and _only_masking(name, before, after)}
            # The file of a ledger that is empty so far is no charge.
            allowed |= {name for name in changed - before.keys() if name.startswith("ledger-") and charged == 0}
            problems = [f"a refusal ({code}) changes {_kind(name)}" for name in sorted(changed - allowed)]
            return problems + (["a refusal charges"] if charged > 0 else [])
        draft = Draft.of(frame[:-SIGNATURE_BYTES])
        address = draft.fields["address"]
        run, sends = address["run"], stage in SENDING and draft.fields.get("step") != MEASURE
        problems = [
            f"an answer changes {_kind(name)} of another run"
            for name in sorted(changed)
            if run not in name and name not in ("state/book.json", "secret.key")
        ]
        if charged < 0 and draft.fields.get("final") is not True:
            problems.append("an answer takes a charge back")
        if charged > (1 if sends else 0):
            problems.append(f"{stage} charges {charged}")
        return problems + (self._about_upload(address, draft, packet, after) if sends else [])

    def _about_upload(self, address: Any, draft: Draft, packet: Any, after: Files) -> list[str]:
        """What is wrong where an upload left."""
        lines = after.get(f"ledger-{address['run']}.jsonl", b"").decode().splitlines()
        place = (address["cohort_id"], draft.fields["step"], address["query_id"])
        entries = [json.loads(line) for line in lines]
        problems = []
        if not any((one.get("cohort_id"), one.get("step"), one.get("index")) == place for one in entries):
            problems.append("an upload left that is not charged")
        sent = b"".join(array.tobytes() for name, array in sorted(packet.arrays.items()))
        # A sum of protected uploads says nothing that the uploads do not, so it may be fetched besides.
        key = (address["run"], place[0], place[2], draft.fields.get("each"))
        if not self._federation.setting.seeded and self._answered.setdefault(key, sent) != sent:
            problems.append("two uploads with noise left for one query")
        return problems

    def _case(self, what: str, stage: str, frame: bytes = b"") -> str:
        return f"{self.name}, {stage}, {what}, {frame[:3000]!r}"


def _entries(files: Files) -> int:
    """Queries in all ledgers, whose first lines are headers."""
    return sum(len(data.splitlines()) - 1 for name, data in files.items() if name.startswith("ledger-"))


def _kind(name: str) -> str:
    return Path(name).name.split("-")[0].split(".new")[0]


def _only_masking(name: str, before: Files, after: Files) -> bool:
    """Whether a record differs in the masked sum that has ended, and in nothing else."""
    if not name.endswith("record.json") or name not in before or name not in after:
        return False
    old, new = json.loads(before[name]), json.loads(after[name])
    return {key for key in new if new[key] != old[key]} <= {"masking", "version"}
