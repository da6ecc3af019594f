"""This package as one zip, which Python imports from, and a script that runs it: for clusters without the package."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_PACKAGE = "airflow_hive_to_delta"
#: The parts that a job needs. They import nothing of the others.
_PARTS = ("core", "job")
#: The folder of the scripts that platforms are given to run.
_SCRIPTS = "engines/scripts"
#: The oldest that a zip can hold: the content alone is to make a difference.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class PackageFile:
    """A file that jobs need where this package is not installed."""

    #: It holds a hash of the content.
    name: str
    content: bytes = field(repr=False)


def main_script(name: str = "run_job.py") -> PackageFile:
    """The script that runs a job of the zip. It imports the package when it runs.

    :param name: the file name of the script in ``engines/scripts``.
    """
    content = read_script(name)
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    return PackageFile(f"{name.removesuffix('.py')}-{digest}.py", content)


def read_script(name: str) -> bytes:
    """The content of a script in ``engines/scripts``."""
    return (files(_PACKAGE) / _SCRIPTS / name).read_bytes()


@cache
def package_zip() -> PackageFile:
    """The core and the job of this package, as one zip. Equal sources make an equal name on every machine."""
    root = files(_PACKAGE)
    modules = {f"{_PACKAGE}/__init__.py": (root / "__init__.py").read_bytes()}
    for part in _PARTS:
        modules |= {f"{_PACKAGE}/{name}": content for name, content in _modules(root / part, part)}
    digest = hashlib.blake2b(digest_size=16)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(modules.items()):
            digest.update(f"{len(name)} {len(content)} {name}".encode() + content)
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return PackageFile(f"{_PACKAGE}-{digest.hexdigest()}.zip", written.getvalue())


def _modules(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _modules(entry, name)
        elif name.endswith(".py"):
            yield name, entry.read_bytes()
