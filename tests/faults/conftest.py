"""Where the recordings are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for what the files here share
