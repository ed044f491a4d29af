"""A page with mqtt.js, opened by a headless chromium: what it says comes back as the outcome.

mqtt.js comes from the npm registry, with the version that package.json names, into node_modules here, when it is not there yet.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from tests.needs import find_program

HERE = Path(__file__).parent
SCRIPT = HERE / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"
INSTALL_S = 180
PAGE_S = 90.0


def install(directory: Path = HERE) -> None:
    """mqtt.js, as package.json of that directory names it, if it is not there."""
    script = directory / SCRIPT.relative_to(HERE)
    if script.is_file():
        return
    npm = find_program("npm")
    assert npm is not None
    words = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--silent"]
    subprocess.run(words, cwd=directory, check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    assert script.is_file(), f"npm has installed no {script.relative_to(directory)}"


class Site:
    """A page on loopback, and what it said."""

    def __init__(self, server: ThreadingHTTPServer, outcomes: queue.Queue[dict[str, object]]) -> None:
        self.origin = f"http://127.0.0.1:{server.server_port}"
        self._outcomes = outcomes

    def visit(self, **asked: str) -> dict[str, object]:
        """Open the page in a browser of its own and wait for what it says."""
        chromium = find_program("chromium")
        assert chromium is not None
        with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as profile:
            words = [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--ignore-certificate-errors", f"--user-data-dir={profile}", f"{self.origin}/?{urlencode(asked)}",
            ]  # fmt: skip
            quiet = subprocess.DEVNULL
            # --remote-debugging-port keeps a headless browser from ending when the page is loaded.
            browser = subprocess.Popen([*words[:-1], "--remote-debugging-port=0", words[-1]], stdin=quiet, stdout=quiet, stderr=quiet)
            try:
                return self._outcomes.get(timeout=PAGE_S)
            except queue.Empty:
                raise AssertionError(f"the page at {self.origin} said nothing within {PAGE_S:.0f} s: {asked}") from None
            finally:
                browser.kill()
                browser.wait()


def _handler(files: Mapping[str, tuple[str, Path]], outcomes: queue.Queue[dict[str, object]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, path = files.get(urlsplit(self.path).path, ("", HERE))
            if not kind:
                self.send_error(404)
                return
            body = path.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            outcomes.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def site() -> Iterator[Site]:
    """The page at an origin of its own."""
    assert shutil.which("node") is not None or SCRIPT.is_file()
    install()
    files = {
        "/": ("text/html", HERE / "page.html"),
        "/page.js": ("text/javascript", HERE / "page.js"),
        "/mqtt.min.js": ("text/javascript", SCRIPT),
    }
    outcomes: queue.Queue[dict[str, object]] = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(files, outcomes))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Site(server, outcomes)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
