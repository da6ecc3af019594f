"""What the results depend on: the machine and the versions, without names of hosts or paths."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyiceberg", "pyarrow")


def describe_machine(folder: Path) -> dict[str, Any]:
    """Cores, memory, the disk of a folder, and the versions of what is compared."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "disk": _disk(folder),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: _version(name) for name in _PACKAGES},
        # Above the number of cores: others were working meanwhile.
        "load_before": round(os.getloadavg()[0], 1),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _disk(folder: Path) -> str:
    """The file system of a folder and the kind of disk under it, such as ``ext4 on a virtual disk``."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    real = folder.resolve()
    fitting = [mount for mount in mounts if real.is_relative_to(mount[1])]
    device, _, filesystem = max(fitting, key=lambda mount: len(mount[1]))[:3]
    number = os.stat(real).st_dev
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if (block / "partition").exists():
        block = block.parent
    if not (block / "queue/rotational").exists():
        return f"{filesystem} in memory" if device == "tmpfs" else filesystem
    spins = (block / "queue/rotational").read_text().strip() == "1"
    kind = "a virtual disk" if block.name.startswith(("vd", "xvd")) else "NVMe" if block.name.startswith("nvme") else ""
    return f"{filesystem} on {kind or ('a hard disk' if spins else 'an SSD')}"


def _java() -> str | None:
    java = Path(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.partition('"')[2].partition('"')[0] or None
