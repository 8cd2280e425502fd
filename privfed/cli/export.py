"""`privfed export`: the item codes of a trained run, as the file that a device downloads to recommend with."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privfed.cli import early, options
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.cli.recommender import CodeTable

EXAMPLE = "Example: privfed export runs/dfmr codes.safetensors"


def export(
    directory: options.RunDirectory,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the codes.", show_default=False)],
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the item codes of a run whose method makes codes (dfmr, dcf, lightfr) to FILE, one bit per sign.

    The file holds the packed codes, their length and the original item ids; `privfed.methods.dfmr.codes.ItemCodes.load`
    reads it, and `recommend` there ranks items for a packed user code. User codes are private and are not in it.
    """
    early.refuse_absent(directory, "run")

    from privfed.cli.directory import DirectoryRecord

    screen = Screen(as_json, quiet)
    DirectoryRecord.read(directory, "run")

    from privfed.cli.recommender import item_codes, trained

    experiment, interactions, next_round = trained(directory, screen)
    codes = item_codes(experiment, interactions)
    if codes is None:
        raise CommandError(
            f"{directory} was trained with {experiment.config.method_name}, which makes no codes: export a run of "
            f"dfmr, dcf or lightfr"
        )
    _refuse_to_harm(file, codes)
    codes.save(file)
    screen.result(
        f"{len(codes):,} item codes of {codes.d} bits after {next_round} rounds: {codes.nbytes:,} bytes, in {file}"
    )
    screen.document(
        {
            "directory": str(directory),
            "file": str(file),
            "method": experiment.config.method_name,
            "rounds": next_round,
            "items": len(codes),
            "bits": codes.d,
            "code_bytes": codes.nbytes,
            "synthetic": interactions.card.synthetic,
        }
    )


def _refuse_to_harm(file: Path, codes: "CodeTable") -> None:
    """Codes may replace codes, and no other file."""
    if not file.parent.is_dir():
        raise CommandError(f"there is no folder {file.parent} to write {file.name} to: make it, or choose another FILE")
    if not file.exists():
        return
    try:
        codes.load(file)
    except ValueError:
        raise CommandError(f"{file} is there already and holds no item codes: choose another FILE") from None
