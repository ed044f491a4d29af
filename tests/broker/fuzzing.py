"""The same cases against a real broker, over its sockets: judged by what comes back, its processes, its logs and its memory.

An honest client goes on all the while: each of its messages has to come back to it.  `python -m tests.broker.fuzzing` is `make fuzz`:
it goes through a million cases, writes down how far it is, and goes on from there when it was ended.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from tests.broker.hostile import Ports, one
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.peer import Peer
from tests.fuzz.cases import LANES, case, prepare
from tests.fuzz.judge import Unjust
from tests.gates.footprint import MB, pss_bytes

ECHO_EVERY_S = 0.1
WARM = 10_000
"""Cases after which the broker has all that it keeps for itself; what it holds then is what it is compared with."""
GROWTH_MAX = 1.05
CHUNK = 5_000
"""Cases between two looks at processes and logs: few enough that no log file fills twice meanwhile, of which only one former is kept."""
OPTIONS = Options(
    {
        **QUIET_RAY,
        "listeners.web.type": "ws",
        "listeners.web.bind": "127.0.0.1:0",
        # Byte by byte, 32 at once, from a process that others keep from running: a CONNECT may take its time to be sent.
        "gateway.connect_timeout": "60s",
    }
)
"""Of a broker that is tried: it listens for both ways."""


@asynccontextmanager
async def echoing(port: int) -> AsyncIterator[None]:
    """An honest client, whose messages have to come back to it while the block runs."""
    peer = await Peer.connect(port, 5, "honest")
    await peer.subscribe(("honest/echo", 1))
    task = asyncio.create_task(_echo(peer))
    try:
        yield
    finally:
        if not task.done():
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        peer.drop()


async def _echo(peer: Peer) -> None:
    number = 0
    while True:
        number += 1
        await peer.publish("honest/echo", b"%d" % number)
        came = await peer.take()
        if came.payload != b"%d" % number:
            raise Unjust(f"the honest client got {came}, wanted {number}")
        await asyncio.sleep(ECHO_EVERY_S)


async def run(ports: Ports, numbers: range) -> float:
    """Every lane works through its own numbers; the longest wait for an answer, in seconds.  `prepare` comes before whatever waits on
    the same loop."""
    prepare()
    longest_s = 0.0

    async def lane(index: int) -> None:
        nonlocal longest_s
        for number in numbers:
            if number % LANES == index:
                _, waited_s = await one(ports, case(number))
                longest_s = max(longest_s, waited_s)

    async with asyncio.TaskGroup() as group:
        for index in range(LANES):
            group.create_task(lane(index))
    return longest_s


def complaints(log_dir: Path) -> Iterator[str]:
    """Lines of the logs that no client may cause."""
    for path in sorted(log_dir.glob("*.log*")):
        for line in path.read_text(errors="replace").splitlines():
            if "member.slow_to_start" in line:
                continue  # Of a busy machine, before the first case.
            if "Traceback" in line or "level=error" in line or "level=critical" in line:
                yield f"{path.name}: {line[:300]}"


@dataclass(slots=True)
class Campaign:
    """One broker and case after case, from `done` to `count`."""

    broker: RunningBroker
    done: int
    count: int
    warm_bytes: int = 0
    longest_s: float = 0.0
    """That somebody waited for an answer."""
    began: int = field(init=False)
    ports: Ports = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.done
        web = next((each.port for each in self.broker.status().listeners if each.kind == "ws" and each.shared), 0)
        self.ports = Ports(self.broker.port, web)

    def run(self, say: Callable[[str], None] = lambda line: None, within_s: float = math.inf) -> str:
        """The figure; raises Unjust, or what a client raised that got no connection.  After within_s it ends where it is."""
        pids = sorted(self.broker.status().pids())
        began = time.monotonic()
        over = self.done >= self.count
        while not over:
            chunk = range(self.done, min(self.count, self.done + CHUNK))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self.longest_s = max(self.longest_s, runner.run(self._chunk(chunk)))
            self.done = chunk.stop
            took_s = time.monotonic() - began
            over = self.done == self.count or took_s >= within_s
            self._look(pids, over)
            say(
                f"{self.done} of {self.count} cases, {(self.done - self.began) / took_s:.0f} a second, "
                f"the longest wait {self.longest_s:.2f} s, {pss_bytes(pids) / MB:.0f} MB"
            )
        return f"{self.done - self.began} cases, the longest wait for an answer {self.longest_s:.2f} s, {self._memory()}"

    async def _chunk(self, numbers: range) -> float:
        async with echoing(self.broker.port):
            return await run(self.ports, numbers)

    def _look(self, pids: list[int], over: bool) -> None:
        """No process ended, no log has a word of an error, and what is held does not grow."""
        now = sorted(self.broker.status().pids())
        if now != pids:
            raise Unjust(f"before case {self.done}: the processes were {pids}, they are {now}")
        found = list(complaints(self.broker.data_dir / "logs"))
        if found:
            raise Unjust(f"before case {self.done}: {found[0]}")
        if not self.warm_bytes and self.done - self.began >= WARM:
            self.warm_bytes = pss_bytes(pids)
        if self.warm_bytes and over and pss_bytes(pids) > GROWTH_MAX * self.warm_bytes:
            raise Unjust(self._memory())

    def _memory(self) -> str:
        held = pss_bytes(self.broker.status().pids())
        if not self.warm_bytes:
            return f"{held / MB:.0f} MB, too few cases to compare"
        return f"{held / MB:.0f} MB, {held / self.warm_bytes:.3f} of what was held after {WARM}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.fuzzing", description="Send a broker what no client should.")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--progress", type=Path, default=Path("data/fuzz.txt"), help="how far it is; removed when all is done")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so many, to go on another time")
    parser.add_argument("--case", type=int, help="only this one")
    chosen = parser.parse_args(arguments)
    prepare()
    with RunningBroker(OPTIONS) as broker:
        if chosen.case is not None:
            print(case(chosen.case), asyncio.run(one(Campaign(broker, 0, 0).ports, case(chosen.case)))[0], sep="\n")
            return 0
        done = int(chosen.progress.read_text()) if chosen.progress.exists() else 0
        campaign = Campaign(broker, done, chosen.cases)
        chosen.progress.parent.mkdir(parents=True, exist_ok=True)

        def say(line: str) -> None:
            chosen.progress.write_text(str(campaign.done))
            print(line, flush=True)

        print(f"PASS fuzz: {campaign.run(say, 60 * chosen.minutes)}")
    if campaign.done >= chosen.cases:
        chosen.progress.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
