"""Drives workers of several layouts in turns: each command goes to one after the other, so noise and drift hit all alike.

Ratios are medians of ratios within a round, never of figures from different rounds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TypeVar

from benchmarks.storage.measured import Folded, Opened, Read, Write

T = TypeVar("T", Folded, Opened, Read, Write)
_ROOT = Path(__file__).resolve().parent.parent.parent


class Remote:
    """A worker process, and the answers it gives."""

    def __init__(self, layout: str, shape: str, directory: Path, *more: str) -> None:
        self.layout = layout
        command = [sys.executable, "-m", "benchmarks.storage.worker", layout, shape, str(directory), *more]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        if kind is not None:
            self._process.kill()
        self._process.stdin.close()
        self._process.wait()

    def ask(self, kind: type[T], *words: str | int) -> T:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.layout} ended at {words}, exit code {self._process.wait()}")
        return kind(**json.loads(line))


class Rivals:
    """The layouts on one shape. Answers come in the order of the layouts."""

    def __init__(self, remotes: Sequence[Remote]) -> None:
        self._remotes = remotes

    def ask(self, kind: type[T], *words: str | int) -> list[T]:
        return [remote.ask(kind, *words) for remote in self._remotes]

    def rounds(self, kind: type[T], count: int, *words: str | int) -> list[list[T]]:
        """So many rounds, per layout its answers."""
        found = []
        for number in range(count):
            # Who comes first changes, so that nobody always follows the other's compactions.
            order = range(len(self._remotes)) if number % 2 == 0 else range(len(self._remotes) - 1, -1, -1)
            answers = {index: self._remotes[index].ask(kind, *words) for index in order}
            found.append([answers[index] for index in range(len(self._remotes))])
        return [list(answers) for answers in zip(*found, strict=True)]


@contextmanager
def rivals(layouts: Sequence[str], shape: str, *more: str) -> Iterator[Rivals]:
    with TemporaryDirectory(prefix="hf-bench-") as directory, ExitStack() as stack:
        yield Rivals([stack.enter_context(Remote(layout, shape, Path(directory) / layout, *more)) for layout in layouts])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How many times theirs ours is, over rounds."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))
