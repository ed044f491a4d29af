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
from functools import partial
from pathlib import Path

import uvloop

from tests.broker.hostile import Ports, one
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.peer import Peer
from tests.fuzz.cases import LANES, case, prepare
from tests.fuzz.judge import Unjust
from tests.gates.growth import Growth

ECHO_EVERY_S = 0.1
WARM = 200_000
"""Cases after which the broker has all that it keeps for itself; what it holds in the second half of them is what it is compared with.
RocksDB's tables of family 0 (16 MiB each, 0.4 kB a case) are both full after 60,000; a gateway holds what it will after 40,000, a session
actor after 150,000.  The caches of messages and of blocks would fill for longer than all of it takes: they are made small, below."""
CHUNK = 5_000
"""Cases between two looks at processes and logs: few enough that no log file fills twice meanwhile, of which only one former is kept."""
PIECE = 500
"""Cases between two moments at which it may be made to stand still."""
STILL_LOOK_S = 1.0
OPTIONS = Options(
    {
        **QUIET_RAY,
        "listeners.web.type": "ws",
        "listeners.web.bind": "127.0.0.1:0",
        # Byte by byte, 32 at once, from a process that others keep from running: a CONNECT may take its time to be sent.
        "gateway.connect_timeout": "60s",
        # All cases of a lane have one client id, one after the other as fast as it goes: some come before the gateway knows that the former
        # has left, and a newcomer that has to wait its turn is refused, not tried.
        "access.takeovers_max": "0",
        # A name that nobody meant has a session, too. They end, so that as many are held after a million cases as after some.
        "mqtt.session_expiry_max": "60s",
        "mqtt.session_expiry_interval": "60s",
        "durable_sessions.session_gc_interval": "10s",
        # As many messages as are kept take 45 bytes a case: 64 MiB would not be full after a million.
        "durable_storage.messages.tail_cache_bytes": "1MiB",
        "durable_storage.messages.block_cache": "1MiB",
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
    """One broker and case after case, from `done` to `count`; `warm` of them are for warming up."""

    broker: RunningBroker
    done: int
    count: int
    warm: int = WARM
    stand_still: Callable[[], None] = lambda: None
    """Called when nobody is connected; returns when it may go on."""
    longest_s: float = 0.0
    """That somebody waited for an answer."""
    began: int = field(init=False)
    ports: Ports = field(init=False)
    growth: Growth = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.done
        status = self.broker.status()
        web = next((each.port for each in status.listeners if each.kind == "ws" and each.shared), 0)
        self.ports = Ports(self.broker.port, web)
        self.growth = Growth(self.warm, {each.pid: each.role for each in status.processes})

    def run(self, say: Callable[[str], None] = lambda line: None, within_s: float = math.inf) -> str:
        """The figure; raises Unjust, Grown, or what a client raised that got no connection.  After within_s it ends where it is."""
        began = time.monotonic()
        stood_s = 0.0
        over = self.done >= self.count
        while not over:
            before = time.monotonic()
            self.stand_still()
            stood_s += time.monotonic() - before
            piece = range(self.done, min(self.count, self.done + PIECE, self.done - self.done % CHUNK + CHUNK))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self.longest_s = max(self.longest_s, runner.run(self._piece(piece)))
            self.done = piece.stop
            took_s = time.monotonic() - began
            over = self.done == self.count or took_s >= within_s
            if over or not self.done % CHUNK:
                self._look()
                rate = (self.done - self.began) / (took_s - stood_s)
                say(f"{self.done} of {self.count} cases, {rate:.0f} a second, the longest wait {self.longest_s:.2f} s, {self.growth}")
        self.growth.judge()
        return f"{self.done - self.began} cases, the longest wait for an answer {self.longest_s:.2f} s, {self.growth}"

    async def _piece(self, numbers: range) -> float:
        async with echoing(self.broker.port):
            return await run(self.ports, numbers)

    def _look(self) -> None:
        """No process ended, no log has a word of an error, and what is held is noted."""
        pids, now = sorted(self.growth.names), sorted(self.broker.status().pids())
        if now != pids:
            raise Unjust(f"before case {self.done}: the processes were {pids}, they are {now}")
        found = list(complaints(self.broker.data_dir / "logs"))
        if found:
            raise Unjust(f"before case {self.done}: {found[0]}")
        self.growth.look(self.done - self.began)


def wait_while_there(path: Path) -> None:
    while path.exists():
        time.sleep(STILL_LOOK_S)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.fuzzing", description="Send a broker what no client should.")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--progress", type=Path, default=Path("data/fuzz.txt"), help="how far it is; removed when all is done")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so many, to go on another time")
    parser.add_argument("--still", type=Path, help="while this file is there, it stands still and nobody is connected")
    parser.add_argument("--case", type=int, help="only this one")
    chosen = parser.parse_args(arguments)
    prepare()
    with RunningBroker(OPTIONS) as broker:
        if chosen.case is not None:
            print(case(chosen.case), asyncio.run(one(Campaign(broker, 0, 0).ports, case(chosen.case)))[0], sep="\n")
            return 0
        done = int(chosen.progress.read_text()) if chosen.progress.exists() else 0
        campaign = Campaign(broker, done, chosen.cases)
        if chosen.still is not None:
            campaign.stand_still = partial(wait_while_there, chosen.still)
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
