"""Runs a program that reads the store (driver.py) as a service manager would: when it ends by a fault, it is started again.

A life of the program is its process, the JVM that it started, and the Python workers of that; all of them bear the mark of this life in
their environment. Whatever of a life is left when its program has ended is killed before the next one begins, as a service manager ends all
that a service has started: two queries must never write to one checkpoint.

What always holds: after ``close`` no process of any life is alive, and no process was ever signalled that is not of a life.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from tests.broker.running import MARK, alive, marked

Part = Literal["driver", "jvm", "worker"]
GONE_S = 60.0
POLL_S = 0.1
PAUSE_S = 0.5
"""Before a program that has ended is started again."""


@dataclass(frozen=True, slots=True)
class Said:
    """A line that a life printed: JSON with a key ``event``."""

    at_s: float
    event: str
    fields: dict[str, object]


@dataclass(slots=True)
class Life:
    """started → ended (code) → swept."""

    number: int
    mark: str
    process: subprocess.Popen[bytes]
    output: Path
    errors: Path
    began_s: float
    code: int | None = None
    read_upto: int = 0
    said: list[Said] = field(default_factory=list)

    def hear(self) -> None:
        """Take up what it printed meanwhile, in whole lines."""
        with self.output.open("rb") as file:
            file.seek(self.read_upto)
            text = file.read()
        end = text.rfind(b"\n") + 1
        self.read_upto += end
        for line in text[:end].splitlines():
            try:
                fields = json.loads(line)
            except ValueError:
                continue  # others print as well
            if isinstance(fields, dict) and "event" in fields:
                self.said.append(Said(time.monotonic(), str(fields["event"]), fields))

    def last_words(self) -> str:
        """The end of what it wrote to its standard error, in one line."""
        text = self.errors.read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and "WARN" not in line]
        return " | ".join(lines[-4:])[-700:]


class Supervisor:
    """Lives of one program, one after the other. Its standard output and error go to files below ``directory``."""

    def __init__(self, command: Sequence[str], directory: Path, *, cwd: Path, environment: dict[str, str] | None = None) -> None:
        self._command = list(command)
        self._directory = directory
        self._cwd = cwd
        self._environment = environment or {}
        self._task: asyncio.Task[None] | None = None
        self.lives: list[Life] = []
        self.finished = False

    @property
    def life(self) -> Life:
        return self.lives[-1]

    @property
    def restarts(self) -> int:
        return len(self.lives) - 1

    def begin(self) -> None:
        """From now on it runs, and is started again whenever it ends with another code than 0."""
        self._task = asyncio.get_running_loop().create_task(self._supervise(), name="supervisor")

    async def ended(self, within_s: float) -> None:
        """Wait until a life has ended by itself with code 0."""
        assert self._task is not None
        async with asyncio.timeout(within_s):
            await asyncio.shield(self._task)

    async def stop(self, within_s: float) -> int:
        """SIGTERM to the program, and no further life; the code with which it ended, or -9 when it had to be killed."""
        await self._cancel()
        life = self.life
        if life.code is None:
            life.process.terminate()
            deadline = time.monotonic() + within_s
            while life.process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110  # a process is no event
                await asyncio.sleep(POLL_S)
        await asyncio.to_thread(self._sweep, life)
        assert life.code is not None
        return life.code

    async def close(self) -> None:
        """End everything, whatever it is doing."""
        await self._cancel()
        for life in self.lives:
            await asyncio.to_thread(self._sweep, life)

    # ---- who is there

    def pids(self, part: Part) -> list[int]:
        """Processes of the present life, sorted by when they began."""
        if not self.lives or self.life.code is not None:
            return []
        driver = self.life.process.pid
        if part == "driver":
            return [driver] if alive(driver) else []
        found = []
        for pid in marked(self.life.mark):
            if pid == driver:
                continue
            try:
                process = psutil.Process(pid)
                name = process.name()
                if part == "jvm" and name == "java":
                    found.append((process.create_time(), pid))
                # The one that forks the others has the JVM for its parent; killing that one kills all of them.
                if part == "worker" and name.startswith("python"):
                    found.append((process.create_time(), pid))
            except psutil.NoSuchProcess:
                continue
        return [pid for _, pid in sorted(found)]

    def kill(self, pid: int) -> None:
        """SIGKILL to a process of the present life, and to no other."""
        if pid not in marked(self.life.mark):
            raise ProcessLookupError(f"pid {pid} is not of this life")
        os.kill(pid, signal.SIGKILL)

    # ---- lives

    async def _supervise(self) -> None:
        while True:
            life = self._start()
            while life.process.poll() is None:  # a process is no event
                await asyncio.sleep(POLL_S)
                life.hear()
            await asyncio.to_thread(self._sweep, life)
            if life.code == 0:
                self.finished = True
                return
            await asyncio.sleep(PAUSE_S)

    def _start(self) -> Life:
        number = len(self.lives) + 1
        mark = uuid.uuid4().hex
        output, errors = self._directory / f"life-{number}.out", self._directory / f"life-{number}.err"
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env={**os.environ, **self._environment, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        life = Life(number, mark, process, output, errors, time.monotonic())
        self.lives.append(life)
        return life

    def _sweep(self, life: Life) -> None:
        """Kill what is left of a life."""
        deadline = time.monotonic() + GONE_S
        if life.process.poll() is None:
            life.process.kill()
        life.process.wait()
        while left := marked(life.mark):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # ended meanwhile
            if time.monotonic() > deadline:
                raise TimeoutError(f"alive {GONE_S:.0f} s after SIGKILL: {left}")
            time.sleep(0.02)
        if life.code is None:
            life.hear()
            life.code = life.process.returncode

    async def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
        elif task is not None:
            task.result()
