"""The dossier of a run as files that everybody may read: whole, unchanged, and about that very run."""

from pathlib import Path

from privfed.api.errors import UseError
from privfed.dossier.making import EVIDENCE
from privfed.dossier.manifest import MANIFEST, SIGNATURES, differences, read_manifest
from privfed.dossier.reading import read, read_if_there
from privfed.dossier.signature import ROLES
from privfed.experiment.folder import DEVICES, GUARANTEE
from privfed.experiment.record_file import RECORD


def dossier_files(folder: Path, run: Path) -> tuple[str, dict[str, bytes]]:
    """The SHA-256 of a dossier's manifest, and its files by name, signatures included.

    Args:
        folder: of the dossier.
        run: folder of the run.

    Raises:
        DossierError: the folder is no dossier.
        UseError: it was changed, or is about another run.
    """
    manifest, digest = read_manifest(folder)
    if problems := differences(folder, manifest):
        raise UseError(f"{folder} is not what was made ({'; '.join(problems)}): make the dossier again")
    for name in (DEVICES if (run / DEVICES).exists() else RECORD, GUARANTEE):
        if manifest.files.get(f"{EVIDENCE}/{name}") != read(run, name).sha256:
            raise UseError(f"{folder} is about another run than {run}: give the dossier that was made of it")
    content = {name: read(folder, name).content for name in (*manifest.files, MANIFEST)}
    for role in ROLES:
        signed = read_if_there(folder, f"{SIGNATURES}/{role}.json")
        if signed is not None:
            content[signed.name] = signed.content
    return digest, content
