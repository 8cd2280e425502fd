"""A page as PDF, by Chromium where there is one."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 120
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-pdf-header-footer",
)


def chromium() -> str | None:
    """The browser's program; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


def print_pdf(page: Path, file: Path) -> str | None:
    """Print a page into a file; why there is none, or None where there is."""
    program = chromium()
    if program is None:
        return f"no PDF was made: none of {', '.join(NAMES)} is installed, so print {page.name} from a browser"
    # Chromium has no sandbox for the superuser and refuses to start; the page is ours, runs nothing and loads nothing.
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="privfed-pdf-") as home:
        command = [
            program,
            *_FLAGS,
            *root,
            f"--user-data-dir={home}",
            f"--print-to-pdf={file}",
            page.resolve().as_uri(),
        ]
        try:
            subprocess.run(  # noqa: S603 - the browser that is installed here, on a page of ours
                command, capture_output=True, timeout=_PATIENCE, check=True, env=os.environ | {"HOME": home}
            )
        except (OSError, subprocess.SubprocessError) as error:
            file.unlink(missing_ok=True)
            return (
                f"no PDF was made: {Path(program).name} failed ({type(error).__name__}), so print {page.name} yourself"
            )
    return None if file.exists() else f"no PDF was made: {Path(program).name} wrote none, so print {page.name} yourself"
