"""The modules beside the tests (torture backend, its cases) are importable by name, as workers import them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
