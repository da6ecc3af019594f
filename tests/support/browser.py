"""A headless Chromium for tests of pages."""

from __future__ import annotations

import base64
import fcntl
import io
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.project import PROJECT


class Browser:
    """A headless Chromium, spoken to over its debugging pipe."""

    # The pipe's ends must be the file descriptors 3 and 4 of the browser.
    LAUNCH = "import os, sys; _, r, w, *run = sys.argv; os.dup2(int(r), 3); os.dup2(int(w), 4); os.execv(run[0], run)"

    def __init__(self, executable: str, home: Path) -> None:
        theirs_in, self._out = high_pipe()
        self._in, theirs_out = high_pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", self.LAUNCH, str(theirs_in), str(theirs_out), executable),
                *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
                *(
                    "--no-first-run",
                    "--no-proxy-server",
                    "--disable-background-networking",
                    "--disable-component-update",
                ),
                *("--force-color-profile=srgb", "--remote-debugging-pipe", f"--user-data-dir={home / 'profile'}"),
                # Nothing is ever asked of another host, whatever a page tries.
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
            pass_fds=(theirs_in, theirs_out),
            env={**os.environ, "HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._last:
            self._events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, page: Path | str, scheme: str = "light", width: int = 1440, height: int = 900) -> None:
        """Load a page from a file or a URL, and wait until it and all that it asked for is there or has failed."""
        self._events.clear()
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())

    def events(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self._events if event.get("method") == method]

    def requests_elsewhere(self, page: Path) -> list[str]:
        """The requests of the open page, except for the page itself."""
        kept_back = {
            event["requestId"] for event in self.events("Network.loadingFailed") if event.get("blockedReason") == "csp"
        }
        sent = [
            event["request"]["url"]
            for event in self.events("Network.requestWillBeSent")
            if event["requestId"] not in kept_back
        ]
        assert page.as_uri() in sent, "requests are seen at all"
        return [url for url in sent if url != page.as_uri()]

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self) -> Image.Image:
        """The whole page, below the fold too."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")

    def close(self) -> None:
        self._session = None
        self.call("Browser.close")
        self._process.wait(timeout=60)
        os.close(self._out)
        os.close(self._in)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], 60)
            assert ready, "the browser does not answer"
            chunk = os.read(self._in, 1 << 16)
            assert chunk, "the browser has gone"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


def high_pipe() -> tuple[int, int]:
    """A pipe whose ends cannot be taken for 3 or 4."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = os.environ.get("CHROMIUM")
    if not found:
        script = subprocess.run([PROJECT / "scripts" / "chromium"], stdout=subprocess.PIPE, text=True, check=True)
        found = script.stdout.strip()
    chromium = Browser(found, tmp_path_factory.mktemp("browser"))
    yield chromium
    chromium.close()
