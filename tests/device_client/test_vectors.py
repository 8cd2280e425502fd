"""The module in node equals Python on the published vectors, and refuses what lies."""

import subprocess
from collections.abc import Callable


def test_the_module_equals_the_vectors_and_refuses_what_lies(
    node: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    done = node("--test")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "# fail 0" in done.stdout
    assert "# pass 0" not in done.stdout
