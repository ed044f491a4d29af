"""`python -m benchmarks.bare`: how fast one message at a time can be at most, in Python on uvloop with RocksDB and a sync.

A program that is no broker takes Holdfast's place in the scenario `single`: it takes a PUBLISH, writes it to RocksDB, syncs, acknowledges,
and hands the bytes to every subscriber as they came. It knows no session, no filter, no packet identifier of its own, and forgets who has
gone. Whatever a broker does beside that comes on top of it.

`mosquitto` and Holdfast take turns with it. `--without sync` leaves the sync out, `--without store` RocksDB too.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import uvloop
from rocksdict import Options as RocksOptions
from rocksdict import Rdict

from benchmarks.bench import new_results, running, standing, take_turns
from benchmarks.brokers import STOP_S, Broker, Doors, Groups, ended_from_outside, free_port, wait_listening
from benchmarks.scenarios import Options
from benchmarks.table import median
from benchmarks.turns import Turn
from benchmarks.workers import RunFailed

TURNS: Final = 5
WITHOUT: Final = ("nothing", "sync", "store")
CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ = 1, 3, 8, 10, 12


class Forwarding(asyncio.Protocol):
    """A connection."""

    def __init__(self, store: Rdict, without: str, subscribers: list[asyncio.WriteTransport]) -> None:
        self._store, self._without, self._subscribers = store, without, subscribers
        self._unread = b""
        self._stored = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports in everything but the class.
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport in self._subscribers:
            self._subscribers.remove(self._transport)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data
        start = 0
        while (whole := _packet(data, start)) is not None:
            body, end = whole
            self._take(data[start] >> 4, data[start:end], data[body:end])
            start = end
        self._unread = data[start:]

    def _take(self, kind: int, packet: bytes, body: bytes) -> None:
        if kind == PUBLISH:
            topic_bytes = 2 + int.from_bytes(body[:2], "big")
            self._keep(body)
            self._transport.write(b"\x40\x02" + body[topic_bytes : topic_bytes + 2])
            for subscriber in self._subscribers:
                subscriber.write(packet)
        elif kind == CONNECT:
            self._transport.write(b"\x20\x02\x00\x00")
        elif kind == SUBSCRIBE:
            self._subscribers.append(self._transport)
            self._transport.write(b"\x90\x03" + body[:2] + b"\x01")
        elif kind == UNSUBSCRIBE:
            self._transport.write(b"\xb0\x02" + body[:2])
        elif kind == PINGREQ:
            self._transport.write(b"\xd0\x00")

    def _keep(self, body: bytes) -> None:
        if self._without != "store":
            self._stored += 1
            self._store.put(self._stored.to_bytes(8, "big"), body)
            if self._without != "sync":
                self._store.flush_wal(True)


def _packet(data: bytes, start: int) -> tuple[int, int] | None:
    """Where its body begins and ends, if it has come whole."""
    length = shift = 0
    for at in range(start + 1, min(start + 5, len(data))):
        length |= (data[at] & 127) << shift
        shift += 7
        if data[at] < 128:
            return (at + 1, at + 1 + length) if at + 1 + length <= len(data) else None
    return None


async def serve(port: int, directory: Path, without: str) -> None:
    """Until it is ended."""
    options = RocksOptions(raw_mode=True)
    options.create_if_missing(True)
    store, subscribers = Rdict(str(directory), options), list[asyncio.WriteTransport]()
    server = await asyncio.get_running_loop().create_server(lambda: Forwarding(store, without, subscribers), "127.0.0.1", port)
    await server.serve_forever()


class Bare:
    """The program, in a process of its own."""

    doors: Doors | None = None

    def __init__(self, directory: Path, without: str) -> None:
        self.name, self.version, self.host, self.port = "bare", without, "127.0.0.1", free_port()
        self.data_dir = directory / "bare"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["--serve", str(self.port), "--dir", str(self.data_dir), "--without", self.version]
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.bare", *words], stdin=subprocess.DEVNULL)
        wait_listening(self.host, self.port, 20)

    def groups(self) -> Groups:
        if self._process is None or self._process.poll() is not None:
            raise RunFailed("the bare program has ended")
        return {"data": (self._process.pid,), "all": (self._process.pid,)}

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_S)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--without", choices=WITHOUT, default="nothing")
    parser.add_argument("--serve", type=int, metavar="PORT", help="be that program, with its store in --dir")
    parser.add_argument("--dir", type=Path, help=argparse.SUPPRESS)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command.  Exit code 2: there is no result."""
    asked = arguments().parse_args(words)
    if asked.serve:
        uvloop.run(serve(asked.serve, asked.dir, asked.without))
    timed = Options(seconds=3.0, hard_s=60)
    with ended_from_outside(), tempfile.TemporaryDirectory(prefix="bare-") as name:
        brokers: list[Broker] = [Bare(Path(name), asked.without), *standing(["holdfast", "mosquitto"], Path(name), [])]
        try:
            with running(brokers):
                records, failures = take_turns([Turn("single", timed, timed, TURNS)], brokers, 4, new_results(None, "bare"))
        except RunFailed as failure:
            print(f"no result: {failure}", file=sys.stderr)
            return 2
    rates = {each.name: median(record.result.delivered_per_s for record in records if record.broker == each.name) for each in brokers}
    for broker, rate in rates.items():
        beside = rates.get("mosquitto")
        print(f"{broker:10} {rate or 0:10,.0f}/s" + (f"  {rate / beside:.2f} of mosquitto's" if rate and beside else ""))
    for sentence in failures:
        print(f"no result: {sentence}")
    return 2 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
