"""Files on the local disk."""

from __future__ import annotations

from pathlib import Path


def write_files(*files: Path, body: bytes = b"data") -> None:
    """Write files of the same content, and the folders that they need."""
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)


def tree(folder: Path) -> dict[str, bytes | None]:
    """By path, the content of every file below a folder; None for a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}
