"""A stranger, who knows the pages and nothing else: does what their boxes say, in an empty directory, and compares what is printed.

A box is a fenced block behind `<!-- task: NAME -->`. What it prints stands in a block behind it, marked `<!-- prints -->`: its lines
come in this order, others may come between, and `…` stands for anything. Each box is given to a shell of its own.

Changed in what is typed, and in the files of deploy/ that it uses, are the numbers of ports, and nothing else: somebody may have those that
the pages name.
Always holds: when `end` has returned, nothing runs that a box has started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.broker.running import MARK, describe, free_port, marked
from tests.needs import ROOT, SEARCH_PATH

PORTS = ("1883", "1884", "8883", "18083", "9090")
"""Those that boxes name."""
ANYTHING = "…"
LAST_LINES = 12
GONE_S = 60.0
_BOX = re.compile(
    r"^<!-- task: (?P<task>\w+) -->\n```bash\n(?P<commands>.*?)^```\n(?:<!-- prints -->\n```text\n(?P<prints>.*?)^```$)?", re.M | re.S
)


class Stuck(Exception):
    """A box did not do what its page says; the text names page and line."""


@dataclass(frozen=True, slots=True)
class Box:
    task: str
    page: str
    line: int
    commands: str
    prints: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"docs/{self.page}:{self.line} ({self.task})"


def boxes(page: Path) -> list[Box]:
    """In the order of the page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BOX.finditer(text):
        line = text.count("\n", 0, match.start("commands"))
        found.append(Box(match["task"], page.name, line, match["commands"], tuple((match["prints"] or "").splitlines())))
    return found


def lacking(prints: Sequence[str], output: str) -> str | None:
    """The first line that does not come in its turn; None when all do."""
    lines = iter(output.splitlines())
    for wanted in prints:
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split(ANYTHING)))
        if not any(pattern.fullmatch(line.rstrip()) for line in lines):
            return wanted
    return None


class Stranger:
    """With a home of his own. directory: where he types, as the first box has made it."""

    def __init__(self) -> None:
        # Short, since sockets and what they lie below are near.
        self.home = Path(tempfile.mkdtemp(prefix="hf-"))
        self.directory = self.home / "holdfast"
        self.mark = uuid.uuid4().hex
        self.ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        self._source = self.home / "source"
        shutil.copytree(ROOT / "deploy", self._source / "deploy")
        for file in self._source.rglob("*.cfg"):
            file.write_text(self._here(file.read_text(encoding="utf-8")), encoding="utf-8")

    def does(self, box: Box, within_s: float) -> str:
        """What it printed; raises Stuck."""
        output = self.home / "output"
        where = self.directory if self.directory.is_dir() else self.home
        with output.open("wb") as file:
            try:
                # Not a pipe: what goes on in the background would hold it open.
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", self._here(box.commands)],
                    cwd=where, env=self._environment(), stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=within_s, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise Stuck(f"{box.place} had not ended after {within_s:.0f} s") from None
        printed = output.read_text(errors="replace")
        last = " | ".join(printed.splitlines()[-LAST_LINES:])[-900:]
        if done.returncode != 0:
            raise Stuck(f"{box.place} ended with code {done.returncode}: {last}")
        absent = lacking([self._here(line) for line in box.prints], printed)
        if absent is not None:
            raise Stuck(f"{box.place} does not print {absent!r} in its turn, but: {last}")
        return printed

    def left(self) -> list[str]:
        """What still runs of all that boxes have started, after a while."""
        deadline = time.monotonic() + GONE_S
        while (pids := marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [describe(pid) for pid in pids]

    def end(self, *, keep: bool) -> None:
        """keep: leave the home for reading."""
        deadline = time.monotonic() + GONE_S
        while (pids := marked(self.mark)) and time.monotonic() < deadline:
            for pid in pids:
                subprocess.run(["kill", "-9", str(pid)], capture_output=True, check=False)
            time.sleep(0.1)
        if not keep:
            shutil.rmtree(self.home, ignore_errors=True)

    def _here(self, text: str) -> str:
        return re.sub(r"\b(" + "|".join(PORTS) + r")\b", lambda found: self.ports[found[1]], text)

    def _environment(self) -> dict[str, str]:
        # Ray's dashboard costs a slow machine half a minute, and no box is about it.
        chosen = {"HOME": str(self.home), "SRC": str(self._source), MARK: self.mark, "HOLDFAST__RAY__DASHBOARD": "false"}
        return {**os.environ, **chosen, "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{SEARCH_PATH}"}


def _free_ports(count: int) -> list[str]:
    found: dict[int, None] = {}
    while len(found) < count:
        found[free_port()] = None
    return [str(port) for port in found]
