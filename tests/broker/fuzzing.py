"""The same cases against a real broker, over its sockets: judged by what comes back, its processes, its logs and its memory.

An honest client goes on all the while: each of its messages has to come back to it.  `python -m tests.broker.fuzzing` is `make fuzz`:
it goes through a million cases, writes down how far it is, and goes on from there when it was ended.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Disconnect, Item, Pingreq, Pingresp
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.peer import Peer
from tests.fuzz.cases import LANES, Case, case, prepare
from tests.fuzz.frames import REQUEST, Answers, frame
from tests.fuzz.inside import CONNECT_BYTES_MAX, PACKET_BYTES_MAX
from tests.fuzz.judge import Seen, Unjust, judged
from tests.gates.footprint import MB, pss_bytes

PATIENCE_S = 20.0
ECHO_EVERY_S = 0.1
WARM = 10_000
"""Cases after which the broker has all that it keeps for itself; what it holds then is what it is compared with."""
GROWTH_MAX = 1.05
CHUNK = 1_000
OPTIONS = Options({**QUIET_RAY, "listeners.web.type": "ws", "listeners.web.bind": "127.0.0.1:0"})
"""Of a broker that is tried: it listens for both ways."""


@dataclass(slots=True)
class Expected:
    """What our own decoder says of the bytes: only for how long to wait, and for what."""

    version: int | None
    failed: str | None
    held: int
    items: list[Item] = field(default_factory=list)

    @property
    def ends(self) -> bool:
        """The server closes by itself."""
        return self.failed is not None or any(isinstance(item, Disconnect) for item in self.items)


def expected(given: Case) -> Expected:
    decoder = Decoder(None, PACKET_BYTES_MAX, connect_bytes_max=CONNECT_BYTES_MAX)
    try:
        items = decoder.feed(given.wire)
    except DecodeError as error:
        return Expected(decoder.version, error.detail, 0, error.items)
    return Expected(decoder.version, None, decoder.held_bytes, items)


class Hostile:
    """One connection that sends a case."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wanted: Expected, web: bool) -> None:
        self._reader, self._writer = reader, writer
        self._web = Answers() if web else None
        self._wanted = wanted
        self._answers = Decoder(wanted.version, 256 << 20, role="client") if wanted.version in (3, 4, 5) else None
        self.out = b""
        self.closed = self.reset = False
        self.told_off = False
        """It was told that it is closed: nothing but the close follows."""

    async def send(self, pieces: tuple[bytes, ...]) -> None:
        try:
            for piece in pieces:
                self._writer.write(piece)
                await self._writer.drain()
                # What was written goes out by itself, not together with what follows.
                await asyncio.sleep(0)
        except ConnectionError:
            self.reset = True

    async def until(self, kind: type[Item] | None) -> None:
        """Until such an answer, or the end; None: until the end."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not self.closed:
                    data = await self._reader.read(1 << 16)
                    self.closed = not data
                    if self._web is not None:
                        data = self._web.feed(data)
                    self.out += data
                    if data and self._has(data, kind) and not self.told_off:
                        return
        except ConnectionError:
            self.closed = self.reset = True
        except TimeoutError:
            raise Unjust(f"neither {kind.__name__ if kind else 'a close'} within {PATIENCE_S:.0f} s; so far {self.out!r}") from None

    def _has(self, data: bytes, kind: type[Item] | None) -> bool:
        if self._answers is None:
            return False
        try:
            answers = self._answers.feed(data)
        except DecodeError:
            return True  # Judged by the whole of it.
        self.told_off |= any(isinstance(each, Disconnect) or (isinstance(each, Connack) and each.reason != 0) for each in answers)
        return kind is not None and any(isinstance(each, kind) for each in answers)


class Ports(NamedTuple):
    """web: 0 where the broker does not listen for it; those cases go over TCP then."""

    tcp: int
    web: int


async def one(ports: Ports, given: Case) -> Seen:
    if given.web and not ports.web:
        given = replace(given, web=False, spoiled=False, pieces=(given.wire,))
    wanted = expected(given)
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.web if given.web else ports.tcp)
    hostile = Hostile(reader, writer, wanted, given.web)
    pinged = False
    try:
        if given.web:
            await hostile.send((REQUEST,))
        await hostile.send(given.pieces)
        if given.spoiled:
            pass  # It may wait for the rest of a frame for ever.
        elif wanted.ends:
            await hostile.until(None)
        elif wanted.version is not None:
            # A CONNECT was understood; what follows it may be half a packet.
            await hostile.until(Connack)
            pinged = not wanted.held and not hostile.closed
            if pinged:
                ping = encode(4, Pingreq())
                await hostile.send((frame(ping) if given.web else ping,))
                await hostile.until(Pingresp)
    finally:
        writer.transport.abort()
    if given.spoiled:
        return Seen(None, b"", True)
    seen = Seen(
        wanted.version, hostile.out, hostile.closed, wanted.failed, wanted.held, pinged,
        hostile.reset or any(isinstance(item, Disconnect) for item in wanted.items),
    )  # fmt: skip
    _judged(given, seen, hostile.reset)
    return seen


def _judged(given: Case, seen: Seen, reset: bool) -> None:
    try:
        if not (reset and not seen.out):
            judged(given, seen)
    except Unjust as error:
        error.add_note(str(given))
        raise


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


async def run(ports: Ports, numbers: range) -> None:
    """Every lane works through its own numbers.  `prepare` comes before whatever waits on the same loop."""
    prepare()

    async def lane(index: int) -> None:
        for number in numbers:
            if number % LANES == index:
                await one(ports, case(number))

    async with asyncio.TaskGroup() as group:
        for index in range(LANES):
            group.create_task(lane(index))


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
    began: int = field(init=False)
    ports: Ports = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.done
        web = next((each.port for each in self.broker.status().listeners if each.kind == "ws" and each.shared), 0)
        self.ports = Ports(self.broker.port, web)

    def run(self, say: Callable[[str], None] = lambda line: None) -> str:
        """The figure; raises Unjust, or what a client raised that got no connection."""
        pids = sorted(self.broker.status().pids())
        began = time.monotonic()
        while self.done < self.count:
            chunk = range(self.done, min(self.count, self.done + CHUNK))
            asyncio.run(self._chunk(chunk))
            self.done = chunk.stop
            self._look(pids)
            say(f"{self.done} of {self.count} cases, {(self.done - self.began) / (time.monotonic() - began):.0f} a second")
        return f"{self.done - self.began} cases, {self._memory()}"

    async def _chunk(self, numbers: range) -> None:
        async with echoing(self.broker.port):
            await run(self.ports, numbers)

    def _look(self, pids: list[int]) -> None:
        """No process ended, no log has a word of an error, and what is held does not grow."""
        now = sorted(self.broker.status().pids())
        if now != pids:
            raise Unjust(f"before case {self.done}: the processes were {pids}, they are {now}")
        found = list(complaints(self.broker.data_dir / "logs"))
        if found:
            raise Unjust(f"before case {self.done}: {found[0]}")
        if not self.warm_bytes and self.done - self.began >= WARM:
            self.warm_bytes = pss_bytes(pids)
        if self.warm_bytes and self.done == self.count and pss_bytes(pids) > GROWTH_MAX * self.warm_bytes:
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
    parser.add_argument("--case", type=int, help="only this one")
    chosen = parser.parse_args(arguments)
    prepare()
    with RunningBroker(OPTIONS) as broker:
        if chosen.case is not None:
            print(case(chosen.case), asyncio.run(one(Campaign(broker, 0, 0).ports, case(chosen.case))), sep="\n")
            return 0
        done = int(chosen.progress.read_text()) if chosen.progress.exists() else 0
        campaign = Campaign(broker, done, chosen.cases)
        chosen.progress.parent.mkdir(parents=True, exist_ok=True)

        def say(line: str) -> None:
            chosen.progress.write_text(str(campaign.done))
            print(line, flush=True)

        print(f"PASS fuzz: {campaign.run(say)}")
    chosen.progress.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
