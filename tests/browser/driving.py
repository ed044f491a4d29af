"""A headless chromium that a test drives over its DevTools protocol: opens addresses, asks the page, presses keys, takes pictures.

What it did wrong it remembers: exceptions, errors of the console (what the page's policy forbids is one), requests to anywhere else.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.needs import find_program

WITHIN_S = 60.0
LOOK_S = 0.05
MESSAGE_BYTES_MAX = 64 << 20
_DOMAINS = ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility")
_KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Escape": ("Escape", 27, ""),
    " ": ("Space", 32, " "),
    "/": ("Slash", 191, "/"),
}
_KEYS |= {f"Arrow{way}": (f"Arrow{way}", 37 + number, "") for number, way in enumerate(("Left", "Up", "Right", "Down"))}


class PageFailed(Exception):
    """What the browser says of a script of the test."""


class Tab:
    """One tab, from about:blank on."""

    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._last_id = 0
        self.wrong: list[str] = []
        self.requested: list[str] = []
        """Addresses, in order."""
        for domain in _DOMAINS:
            self.command(f"{domain}.enable")

    def command(self, method: str, **given: Any) -> Any:
        self._last_id += 1
        self._socket.send(json.dumps({"id": self._last_id, "method": method, "params": given}))
        deadline = time.monotonic() + WITHIN_S
        while True:
            said = json.loads(self._socket.recv(timeout=max(0.0, deadline - time.monotonic())))
            if said.get("id") == self._last_id:
                if "error" in said:
                    raise PageFailed(f"{method}: {said['error']}")
                return said["result"]
            self._event(said)

    def _event(self, said: dict[str, Any]) -> None:
        given = said.get("params", {})
        match said.get("method"):
            case "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                self.wrong.append(str(details.get("exception", {}).get("description", details["text"])))
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning", "assert"):
                self.wrong.append(f"console: {[one.get('description', one.get('value')) for one in given['args']]}")
            # An answer that is no success is the page's to cope with; what it makes of it is tested.
            case "Log.entryAdded" if given["entry"]["level"] == "error" and given["entry"]["source"] != "network":
                self.wrong.append(f"{given['entry']['source']}: {given['entry']['text']}")
            case "Page.javascriptDialogOpening":
                self.wrong.append(f"a dialog: {given['message']}")
                # Not waited for: the answer comes in its turn.
                self._last_id += 1
                self._socket.send(json.dumps({"id": self._last_id, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}}))
            case "Network.requestWillBeSent":
                self.requested.append(given["request"]["url"])

    # ---------------------------------------------------------------- what it shows

    def ask(self, script: str) -> Any:
        """What this expression is, awaited."""
        done = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise PageFailed(f"{script[:200]}: {done['exceptionDetails'].get('exception', {}).get('description', done)}")
        return done["result"].get("value")

    def until(self, script: str, within_s: float = WITHIN_S) -> Any:
        """What this is when it is something."""
        deadline = time.monotonic() + within_s
        while True:
            found = self.ask(script)
            if found:
                return found
            if time.monotonic() > deadline:
                shown = self.ask("document.body.innerText")
                raise AssertionError(f"not within {within_s:.0f} s: {script}; wrong: {self.wrong}; shown: {shown[:2000]}")
            time.sleep(LOOK_S)

    def visit(self, address: str) -> None:
        """Loads it, even if only what is behind the # is another."""
        self.command("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.command("Page.navigate", url=address)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def before_each(self, script: str) -> None:
        """Runs in every page from now on, before the page's own."""
        self.command("Page.addScriptToEvaluateOnNewDocument", source=script)

    def foreign(self) -> list[str]:
        """What was asked of others than whom the page is from."""
        here = urlsplit(self.ask("location.href")).netloc
        return [each for each in self.requested if urlsplit(each).scheme not in ("data", "about") and urlsplit(each).netloc != here]

    # ---------------------------------------------------------------- how it is looked at

    def window(self, width: int, height: int, *, dark: bool = False) -> None:
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.command("Emulation.setEmulatedMedia", features=[scheme, still])

    def press(self, key: str) -> None:
        code, number, text = _KEYS[key]
        both = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.command("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **both)
        self.command("Input.dispatchKeyEvent", type="keyUp", **both)

    def write(self, text: str) -> None:
        self.command("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        shown = self.command("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        path.write_bytes(base64.b64decode(shown["data"]))

    def nameless(self) -> list[str]:
        """Controls that a screen reader has no name for."""
        wanted = {"button", "link", "textbox", "searchbox", "radio", "treeitem", "dialog"}
        found = []
        for node in self.command("Accessibility.getFullAXTree")["nodes"]:
            role = node.get("role", {}).get("value", "")
            if not node.get("ignored") and role in wanted and not node.get("name", {}).get("value", "").strip():
                found.append(f"{role} {node.get('backendDOMNodeId')}")
        return found


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser of its own; gone at the end with all that it kept."""
    program = find_program("chromium")
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as profile:
        words = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
            "--force-color-profile=srgb", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            port = _port(Path(profile) / "DevToolsActivePort", process)
            new = urllib.request.Request(f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT")
            with urllib.request.urlopen(new, timeout=WITHIN_S) as answer:
                address = json.load(answer)["webSocketDebuggerUrl"]
            with connect(address, max_size=MESSAGE_BYTES_MAX, open_timeout=WITHIN_S, compression=None) as socket:
                yield Tab(socket)
        finally:
            process.kill()
            process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return int(file.read_text().splitlines()[0])
        except (OSError, ValueError, IndexError):
            time.sleep(LOOK_S)
    raise AssertionError(f"chromium has not said its port within {WITHIN_S:.0f} s; it ended with {process.poll()}")
