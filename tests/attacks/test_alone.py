"""The package stands alone."""

import json
import subprocess
import sys


def test_importing_attacks_imports_nothing_of_ours_and_no_training_core():
    code = "import sys, json, attacks; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(printed))
    assert "attacks" in loaded
    assert not loaded & {"privfed", "secure_agg", "pydantic", "pandas", "opacus", "torch"}
