"""The registry lies beside the tests, where the script of the fault table finds it, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
