"""Names of files that are made from names of tables, runs and tasks."""

from __future__ import annotations

import hashlib
import re


def safe_name(name: str) -> str:
    """A name that any storage and any Hadoop file system takes; different names stay different."""
    safe = re.sub(r"[^A-Za-z0-9.=-]+", "_", name).lstrip("._") or "x"
    return safe if safe == name else f"{safe[:100]}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
