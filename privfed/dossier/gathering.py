"""Which kind of folder this is, and the evidence in it."""

import os
from pathlib import Path

from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import Evidence
from privfed.dossier.sources.audit import REPORT, audit_evidence
from privfed.dossier.sources.devices import devices_evidence
from privfed.dossier.sources.node import is_node, node_evidence
from privfed.dossier.sources.run import run_evidence
from privfed.experiment.folder import DEVICES
from privfed.experiment.record_file import RECORD


def gather(folder: Path, setting: str | None = None) -> Evidence:
    """What a folder says.

    Args:
        folder: of a run, an audit or a node.
        setting: which setting of an audit ("method:slug"), or which run of a node.

    Raises:
        DossierError: it is none of these, is damaged or not finished, or `setting` does not name one of them.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise DossierError(f"{folder} {what}: give the folder of a run, an audit or a node")
    if os.path.lexists(folder / REPORT):
        return audit_evidence(folder, setting)
    if is_node(folder):
        return node_evidence(folder, setting)
    of_devices = os.path.lexists(folder / DEVICES)
    if not of_devices and not os.path.lexists(folder / RECORD):
        raise DossierError(f"{folder} holds no run, audit or node: give the --out folder of one, or a node's folder")
    if setting is not None:
        raise DossierError(f"{folder} holds one run, which has no setting {setting[:100]!r}: leave --setting out")
    return devices_evidence(folder) if of_devices else run_evidence(folder)
