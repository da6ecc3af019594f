"""Where the project is."""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
#: Where Spark finds its jars. The environment of Spark 3.5 has those of its own.
IVY = next((folder for folder in [Path(sys.prefix) / "ivy"] if folder.exists()), PROJECT / ".ivy")
