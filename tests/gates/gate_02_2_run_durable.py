"""Gate 2 of issue 2: the acceptance tests of durable sessions, with restart and crash, against one gateway and against two.

`run_durable --part open` of the conformance suites runs against a real broker, first through its only gateway, then through
a relay that sends every connection of a client to another gateway than its last one (moving.py).  The tests that restart the
broker run once more with a SIGKILL of everything in place of the graceful restart.  What is not passed is named; what was
skipped is not passed.

The suites are no part of this repository: HOLDFAST_CONFORMANCE names their directory, or they lie beside the checkout.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.broker.running import Status
from tests.gates.gate import GateFailed, Scale, Watched, running, settings
from tests.gates.moving import Moving
from tests.needs import NEEDS, ROOT

LIMIT_S = 1500
SUITE_S = 600
N_SHARDS = 1
"""Some of its tests expect the messages of two publishers in the order in which they were published.  Nobody promises that
(order is per publisher and topic), and shards, which are chosen by publisher, do not keep it; one shard does."""
TESTS = 63
"""Of the suite; fewer means that it did not run to its end."""
NOT_YET = {"open::test_shared_durable_member_gets_offline_messages"}
"""Groups of durable sessions come with their own issue."""
QUICK = "restart or takeover or unacked or resume"
RESTARTS = "restart_keeps"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of the suite reported."""

    passed: int
    not_passed: tuple[str, ...]

    @property
    def total(self) -> int:
        return self.passed + len(self.not_passed)


def suites() -> Path:
    """The directory of the suites."""
    need = NEEDS["conformance"]
    named = os.environ.get(need.directory_variable or "", "")
    directory = Path(named) if named else ROOT.parent / "shared" / "conformance"
    if not (directory / "run_durable").is_file():
        raise GateFailed(f"not run: no run_durable in {directory}; {need.cure}")
    return directory.resolve()


def read_report(path: Path) -> Outcome:
    """Everything but PASS is named, except the failures that are known."""
    try:
        rows = json.loads(path.read_text())["tests"]
    except (OSError, ValueError, KeyError) as error:
        raise GateFailed(f"run_durable wrote no report: {error}") from error
    passed = sum(row["status"] == "PASS" for row in rows)
    return Outcome(passed, tuple(f"{row['status']} {row['test']}: {row['detail'][:300]}" for row in rows if row["status"] != "PASS"))


def require(outcome: Outcome, where: str, least: int) -> str:
    """The counts, or what is wrong."""
    known = [line for line in outcome.not_passed if line.split(" ")[1].rstrip(":") in NOT_YET]
    wrong = [line for line in outcome.not_passed if line not in known]
    counts = f"{where}: {outcome.passed} of {outcome.total} passed"
    if wrong:
        raise GateFailed(f"{counts}; {'; '.join(wrong)}")
    if outcome.total < least:
        raise GateFailed(f"{counts}, but the suite has {least} tests")
    return counts + "".join(f", not yet: {line.split(' ')[1].rstrip(':').split('::')[1]}" for line in known)


class Commands:
    """What the suite calls to restart the broker: shell commands that tell this process to do it, and wait until it is done."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.status: Status = watched.broker.status()
        self.done: dict[str, int] = {"restart": 0, "crash": 0}
        self._port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._asked, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    def command(self, word: str) -> str:
        script = f'exec 3<>/dev/tcp/127.0.0.1/{self._port} && echo {word} >&3 && read -r answer <&3 && [ "$answer" = done ]'
        return f"bash -c {shlex.quote(script)}"

    def own_ports(self) -> list[int]:
        """The port of each gateway that no other gateway shares."""
        return [each.port for each in sorted(self.status.listeners, key=lambda each: each.gateway) if not each.shared]

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word = (await reader.readline()).decode().strip()
        try:
            if word == "restart":
                await asyncio.to_thread(self._watched.broker.down)
            else:
                await self._watched.kill_all()
            self.status = await self._watched.up()
            self.done[word] += 1
            writer.write(b"done\n")
        except Exception as error:  # what went wrong reaches whoever called the command
            writer.write(f"{' '.join(str(error).split())}\n".encode())
        await writer.drain()
        writer.close()


async def run_suite(directory: Path, port: int, restart: str, crash: str, only: str) -> Outcome:
    """One run; its lines are kept only when it does not end well."""
    with tempfile.TemporaryDirectory(prefix="hf-suite-") as work:
        report, log = Path(work) / "report.json", Path(work) / "log"
        words = [sys.executable, str(directory / "run_durable"), "127.0.0.1", str(port), "--json", str(report), "--part", "open"]
        words += ["--restart-cmd", restart, "--crash-cmd", crash, *(["--k", only] if only else [])]
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out)
            try:
                await asyncio.wait_for(process.wait(), SUITE_S)
            except TimeoutError:
                raise GateFailed(f"run_durable had not ended after {SUITE_S} s: {' | '.join(log.read_text().splitlines()[-3:])}") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return read_report(report)


async def against(directory: Path, gateways: int, scale: Scale) -> str:
    where = f"{gateways} gateway{'s' if gateways > 1 else ''}"
    async with running(settings(N_SHARDS, **{"gateway.count": str(gateways)})) as watched:
        commands = Commands(watched)
        async with commands.listening(), Moving(commands.own_ports) as moving:
            port = moving.port if gateways > 1 else watched.broker.port
            restart, crash = commands.command("restart"), commands.command("crash")
            outcome = await run_suite(directory, port, restart, crash, QUICK if scale.quick else "")
            text = require(outcome, where, 0 if scale.quick else TESTS)
            killed = await run_suite(directory, port, crash, crash, RESTARTS)
            text += f"; {require(killed, 'killed instead of restarted', 1)}"
        if not commands.done["restart"] or not commands.done["crash"]:
            raise GateFailed(f"{where}: the suite did not use both commands: {commands.done}")
        if gateways > 1:
            text += f"; {moving.moves} of {moving.connections} connections were moves to another gateway"
    return text


async def run(scale: Scale) -> str:
    directory = suites()
    return "; ".join([await against(directory, gateways, scale) for gateways in (1, 2)])
