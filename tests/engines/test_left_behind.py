"""What the tests of engines are held to, held to it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import left_behind
from tests.support.left_behind import nothing_left_behind, open_port


def test_a_process_that_is_left_behind_is_seen_even_if_its_parent_has_ended(monkeypatch) -> None:
    monkeypatch.setattr(left_behind, "_GRACE_SECONDS", 0)
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    silent = "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
    starts = f"import subprocess; print(subprocess.Popen({sleeper!r}, {silent}).pid)"
    with pytest.raises(AssertionError, match="still run"), nothing_left_behind():
        said = subprocess.run([sys.executable, "-c", starts], capture_output=True, text=True, check=True).stdout
    subprocess.run(["kill", "-9", said.strip()], check=True)


def test_a_port_that_is_left_open_is_seen() -> None:
    with pytest.raises(AssertionError, match="still open"), nothing_left_behind():
        server = open_port()
    server.close()


def test_what_ends_with_the_test_is_no_matter() -> None:
    with nothing_left_behind(), open_port():
        subprocess.run([sys.executable, "-c", ""], check=True)
