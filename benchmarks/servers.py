"""Servers on loopback for the cases on S3: one of S3 that is faster than its clients, and moto's for Glue."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import PROJECT

_KEY = "benchmarks"
_REGION = "us-east-1"
_VERSITYGW = PROJECT / ".jars" / "versitygw"
#: By default it closes the connection after every request.
_VERSITYGW_SPEED = ("--keep-alive", "--disable-acl")
_S3PROXY = PROJECT / ".jars" / "s3-server.jar"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class S3Server:
    """A running S3 server, and the environment by which clients find it."""

    name: str
    environment: dict[str, str]


@contextmanager
def serve_s3(folder: Path) -> Iterator[S3Server]:
    """Serve S3 from files in a folder: with versitygw, or with S3Proxy, which is slower, where that is missing."""
    data = folder / "s3"
    data.mkdir()
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _KEY,
        "AWS_DEFAULT_REGION": _REGION,
        "AWS_REGION": _REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    versitygw = str(_VERSITYGW) if _VERSITYGW.exists() else shutil.which("versitygw")
    if versitygw:
        own = {"ROOT_ACCESS_KEY_ID": _KEY, "ROOT_SECRET_ACCESS_KEY": _KEY}
        command = [versitygw, "--port", f"127.0.0.1:{port}", "--region", _REGION, "--quiet", *_VERSITYGW_SPEED]
        command += ["posix", "--io-buffer-size", "65536", str(data)]
        with _serve(command, port, folder / "s3.log", own):
            yield S3Server(f"versitygw {_version_of(versitygw)}", environment)
        return
    if not _S3PROXY.exists():
        raise SystemExit(f"No S3 server: `make {_VERSITYGW.relative_to(PROJECT)}` builds one with Go")
    settings = folder / "s3proxy.conf"
    settings.write_text(
        f"s3proxy.endpoint={endpoint}\ns3proxy.authorization=aws-v4\ns3proxy.identity={_KEY}\n"
        f"s3proxy.credential={_KEY}\njclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={data}\n"
    )
    java = str(Path(os.environ["JAVA_HOME"], "bin/java"))
    with _serve([java, "-Xmx512m", "-jar", str(_S3PROXY), "--properties", str(settings)], port, folder / "s3.log"):
        yield S3Server("S3Proxy", environment)


@contextmanager
def serve_glue(folder: Path) -> Iterator[str]:
    """Serve AWS Glue with moto, in a process of its own. Yields its address."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with _serve(command, port, folder / "glue.log"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _serve(command: Sequence[str], port: int, log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
    try:
        if not _answers(port, process):
            raise SystemExit(f"{Path(command[0]).name} did not start: {log.read_text(errors='replace')[-1000:]}")
        yield
    finally:
        process.kill()  # it has nothing to keep
        process.wait()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until somebody listens on a port. False: the process has ended, or took too long."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _version_of(program: str) -> str:
    """The version of a program in Go, which is in its binary."""
    found = re.search(rb"mod\tgithub.com/\S+\tv(\S+)\t", Path(program).read_bytes())
    return found[1].decode() if found else ""
