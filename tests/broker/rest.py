"""Asks a running broker over HTTP, and lets schemathesis ask it whatever its description allows, and does not."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.broker.running import RunningBroker
from tests.broker.scraping import port_of

FINDINGS_TOLD = 6_000
CONFIG = """
# A set of replicas that cannot be is 400 by the design, and only the broker knows which sites there are.
[[operations]]
include-path-regex = "^/api/v5/ds/"
checks.positive_data_acceptance.expected-statuses = ["2XX", "400", "401", "403", "404"]

# Whether a time is still to come, or a group is there that says otherwise, is not in any form.
[[operations]]
include-path-regex = "^/api/v5/groups"
checks.positive_data_acceptance.expected-statuses = ["2XX", "400", "401", "403", "404", "409"]
"""


@dataclass(frozen=True, slots=True)
class Rest:
    """Of a broker, with a key of scope write."""

    port: int
    key: str
    secret: str

    @classmethod
    def of(cls, broker: RunningBroker) -> Rest:
        made = holdfast(broker, "api-keys", "add", "tests", "--scope", "write", "--json")
        return cls(port_of(broker), made["key"], made["secret"])

    async def ask(self, path: str, method: str = "GET", *, keyed: bool = False, body: Any = None, **headers: str) -> tuple[int, Any]:
        return await asyncio.to_thread(self.asked, path, method, keyed=keyed, body=body, **headers)

    def asked(self, path: str, method: str = "GET", *, keyed: bool = False, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and answer.  Raises OSError while nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json"}, method=method)
        for name, value in headers.items():
            request.add_header(name, value)
        if keyed:
            request.add_header("Authorization", f"Bearer {self.key}.{self.secret}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _read(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _read(error.read())

    async def all(self, path: str, limit: int = 3) -> list[Any]:
        """The rows of all pages."""
        rows: list[Any] = []
        cursor = ""
        while True:
            status, page = await self.ask(f"/api/v5/{path}{'&' if '?' in path else '?'}limit={limit}&cursor={cursor}")
            assert status == 200 and page["meta"]["missing"] == [], page
            rows += page["data"]
            cursor = page["meta"]["cursor"]
            assert page["meta"]["hasnext"] == bool(cursor)
            if not cursor:
                return rows


def _read(data: bytes) -> Any:
    return json.loads(data) if data else None


def holdfast(broker: RunningBroker, *words: str) -> Any:
    command = [str(broker.executable), *words, "--data-dir", str(broker.data_dir)]
    done = subprocess.run(command, cwd=broker.directory, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def schemathesis(rest: Rest, directory: Path, examples: int, seed: int, phases: str) -> str:
    """What it has found, the end of it; empty: nothing."""
    config = directory / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", f"http://127.0.0.1:{rest.port}/api-docs",
        "--auth", f"{rest.key}:{rest.secret}", "--max-examples", str(examples), "--seed", str(seed), "--phases", phases,
        # How many of its own ideas it throws away says nothing of the answers.
        "--suppress-health-check", "filter_too_much",
        "--warnings", "off", "--request-timeout", "60", "--no-color", "--generation-database", "none",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=3600, check=False)
    # Requests may be as long as they like, and are of no use to whoever reads.
    said = re.sub(r"\S{200,}", lambda found: f"{found[0][:200]}...", done.stdout + done.stderr)
    return "" if done.returncode == 0 else said[-FINDINGS_TOLD:]
