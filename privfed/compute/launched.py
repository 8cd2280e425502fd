"""How many processes torchrun started together with this one, which its variables say before torch is loaded."""

import os


def launched_processes() -> int:
    """Processes of this run; 1 where it was started by itself."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1
