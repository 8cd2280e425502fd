"""A real browser for tests of pages: Chromium behind its debugging pipe."""

import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
PATIENCE = 30


class Browser:
    """Chromium behind its debugging pipe: JSON messages that end in a null byte, in on descriptor 3 and out on 4."""

    def __init__(self, home: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # posix_spawn rather than a fork: this process has threads. Chromium needs the two ends at 3 and 4, and
        # moving them there in two steps keeps one from landing on the other.
        moves = [(to_read, 103), (to_write, 104), (103, 3), (104, 4)]
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        self._pid = os.posix_spawn(
            str(CHROMIUM),
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={home / 'profile'}", "about:blank"],
            os.environ | {"HOME": str(home)},
            file_actions=[*quiet, *((os.POSIX_SPAWN_DUP2, old, new) for old, new in moves)],
            setpgroup=0,
        )
        os.close(to_read)
        os.close(to_write)
        os.set_blocking(self._read, False)
        self._numbers, self._rest, self._session = itertools.count(1), b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what else is told meanwhile goes to `events`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)
        raise AssertionError("the browser is gone")

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + PATIENCE
        while True:
            while b"\0" in self._rest:
                one, _, self._rest = self._rest.partition(b"\0")
                yield json.loads(one)
            try:
                self._rest += os.read(self._read, 1 << 20)
            except BlockingIOError:
                assert time.monotonic() < end, "the browser does not answer"
                time.sleep(0.005)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, address: str, ready: str) -> None:
        """Open an address, and wait until an expression holds in it."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.wait(ready)

    def wait(self, expression: str) -> None:
        """Wait until an expression holds in the page."""
        end = time.monotonic() + PATIENCE
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < end, f"{expression} does not come true"
            time.sleep(0.02)

    def show(self, page: Path, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Open a page as a window of this width shows it, and wait until its charts are drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.open(page.as_uri(), "document.documentElement?.dataset.charts")

    def press(self, key: str, code: int, text: str = "") -> None:
        """One key, down and up."""
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **told, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def enter(self) -> None:
        """The key that follows links and opens folds."""
        self.press("Enter", 13, "\r")

    def complaints(self) -> list[dict[str, Any]]:
        """Errors and warnings of the page since it was opened."""
        told = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [event["params"] for event in self.events if event["method"] in told]

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        """End the browser and every process that it started."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._write)
        os.close(self._read)
