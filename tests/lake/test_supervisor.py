"""Whoever reads the store is started again when it was killed, and nothing of a former life is there then."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.broker.running import alive, marked
from tests.lake.supervisor import Supervisor

# Starts a child, says who that is, and waits to be ended; from its third life on it ends by itself.
PROGRAM = """
import json, pathlib, subprocess, sys, time
lives = pathlib.Path(sys.argv[1])
with lives.open("a") as file:
    file.write("x")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"event": "ready", "child": child.pid}), flush=True)
if len(lives.read_text()) >= int(sys.argv[2]):
    sys.exit(0)
time.sleep(600)
"""
SOON_S = 60.0


@asynccontextmanager
async def supervised(directory: Path, lives: int) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor([sys.executable, "-c", PROGRAM, str(directory / "lives"), str(lives)], directory, cwd=directory)
    supervisor.begin()
    try:
        yield supervisor
    finally:
        await supervisor.close()
        assert [pid for life in supervisor.lives for pid in marked(life.mark)] == []


async def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not done():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def child_of(supervisor: Supervisor, number: int) -> int:
    (said,) = [each for each in supervisor.lives[number].said if each.event == "ready"]
    assert isinstance(said.fields["child"], int)
    return said.fields["child"]


@pytest.mark.slow
async def test_a_killed_program_lives_again_and_its_orphans_do_not(tmp_path: Path) -> None:
    """Twice; the third life ends by itself, with code 0, and is the last."""
    async with supervised(tmp_path, 3) as supervisor:
        for number in range(2):
            await until(lambda number=number: len(supervisor.lives) > number and bool(supervisor.lives[number].said))  # type: ignore[misc]
            child = child_of(supervisor, number)
            assert alive(child)
            assert supervisor.pids("worker") == [child] and supervisor.pids("jvm") == []
            supervisor.kill(supervisor.pids("driver")[0])
        await supervisor.ended(SOON_S)
        assert [life.code for life in supervisor.lives] == [-9, -9, 0] and supervisor.restarts == 2 and supervisor.finished
        assert [alive(child_of(supervisor, number)) for number in range(3)] == [False] * 3


@pytest.mark.slow
async def test_only_processes_of_the_life_are_killed(tmp_path: Path) -> None:
    """A foreign pid is refused."""
    async with supervised(tmp_path, 9) as supervisor:
        await until(lambda: bool(supervisor.lives and supervisor.life.said))
        with pytest.raises(ProcessLookupError):
            supervisor.kill(1)


@pytest.mark.slow
async def test_what_is_stopped_is_not_started_again(tmp_path: Path) -> None:
    """SIGTERM, its code, and no life after that."""
    async with supervised(tmp_path, 9) as supervisor:
        await until(lambda: bool(supervisor.lives and supervisor.life.said))
        assert await supervisor.stop(SOON_S) == -15
        assert len(supervisor.lives) == 1 and supervisor.pids("driver") == []
