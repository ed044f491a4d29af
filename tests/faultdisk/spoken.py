"""A process on a watched disk that a test speaks with, line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.faultdisk.control import FaultDisk
from tests.needs import ROOT


class Spoken:
    """Python with these arguments. Killed at the end of the ``with``."""

    def __init__(self, disk: FaultDisk, arguments: Sequence[str], *, keep_logs: bool = False) -> None:
        environment = {**os.environ, **disk.environment(keep_logs=keep_logs), "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, *arguments], env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line it says."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, f"the program ended with {self._process.wait()}"
        return said.strip()

    def until(self, word: str) -> list[str]:
        """What it says up to the line that begins with this word, which is the last one."""
        lines = [self.line()]
        while not lines[-1].startswith(word):
            lines.append(self.line())
        return lines

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
