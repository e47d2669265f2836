"""A real browser without a driver: Chromium listens on two pipes, its descriptors 3 and 4, and speaks JSON ended by a zero.

This is the DevTools protocol without a socket, so nothing but Chromium itself is needed.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip


def find() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab. Everything that it says without being asked, such as errors and requests, is in `events`."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._buffer, self._count = to, back, b"", 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _read(self, seconds: float = 30) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._back], [], [], seconds)
            part = os.read(self._back, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Show a page as on a screen of this size, and wait until it is complete."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def find(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the page: scripts that failed, resources that were refused, rules that were broken."""
        told = []
        for event in self.events:
            match event.get("method"):
                case "Log.entryAdded":
                    told.append(event["params"]["entry"]["text"])
                case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Network.loadingFailed":
                    told.append(json.dumps(event["params"]))
        return told

    def requests(self) -> list[str]:
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextlib.contextmanager
def launch(folder: Path) -> Iterator[Browser]:
    """Its profile and its log go to the folder."""
    program = find()
    assert program is not None
    (there, to), (back, here) = _pipe(), _pipe()
    command = [program, *OPTIONS, f"--user-data-dir={folder / 'profile'}"]
    actions = [
        (os.POSIX_SPAWN_DUP2, there, 3),
        (os.POSIX_SPAWN_DUP2, here, 4),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(folder / "browser.log"), os.O_WRONLY | os.O_CREAT, 0o600),
    ]
    process = os.posix_spawn(program, command, {**os.environ, "HOME": str(folder)}, file_actions=actions, setpgroup=0)
    for end in (there, here):
        os.close(end)
    try:
        yield Browser(to, back)
    finally:
        for end in (to, back):
            os.close(end)  # it ends when nobody listens
        _end(process)


def _pipe() -> tuple[int, int]:
    """With descriptors that are not in the way of 3 and 4."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


def _end(process: int) -> None:
    for _ in range(50):
        if os.waitpid(process, os.WNOHANG)[0]:
            return
        time.sleep(0.1)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
