"""So many logins a second, each of them wrong: ``python -m tests.gates.login_load PORT RATE SECONDS`` prints one JSON object at its end.

Half of them give the name of a user who is there (`ann`), with a password of its own each; the others names of nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

import uvloop

from tests.conformance import packets

PATIENCE_S = 15.0


@dataclass(slots=True)
class Told:
    """codes: of CONNACK, and how often.  late_ms: from CONNECT to the slowest CONNACK; waiting: logins under way, at most.

    lost: no CONNACK came.  cpu_s: of this process, which is not to be taken for the broker."""

    sent: int = 0
    seconds: float = 0.0
    codes: dict[int, int] = field(default_factory=dict)
    late_ms: float = 0.0
    waiting: int = 0
    lost: int = 0
    cpu_s: float = 0.0


class Login(asyncio.Protocol):
    def __init__(self, flood: Flood, number: int) -> None:
        self._flood = flood
        user = "ann" if number % 2 else f"nobody-{number}"
        self._first = packets.connect(5, f"wrong-{number}", username=user, password=b"wrong-%d" % number)
        self._transport: asyncio.Transport | None = None
        self._began = 0.0
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are Transports in everything but the class
        self._began = time.monotonic()
        transport.write(self._first)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self._answered or self._transport is None:
            return
        self._answered = True
        self._flood.answered(data[3], (time.monotonic() - self._began) * 1_000)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._flood.over(self._answered)


class Flood:
    def __init__(self, port: int) -> None:
        self._port = port
        self.told = Told()
        self._codes = Counter[int]()
        self._under_way = 0
        self._connecting: set[asyncio.Task[None]] = set()

    def answered(self, code: int, took_ms: float) -> None:
        self._codes[code] += 1
        self.told.late_ms = max(self.told.late_ms, took_ms)

    def over(self, answered: bool) -> None:
        self._under_way -= 1
        self.told.lost += not answered

    async def _login(self, number: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: Login(self, number), "127.0.0.1", self._port)
        except OSError:
            self.over(False)

    async def run(self, rate: float, seconds: float) -> Told:
        told, began = self.told, time.monotonic()
        while (passed_s := time.monotonic() - began) < seconds:
            while told.sent < passed_s * rate:
                self._under_way += 1
                task = asyncio.create_task(self._login(told.sent))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
                told.sent += 1
            told.waiting = max(told.waiting, self._under_way)
            await asyncio.sleep(0.005)
        told.seconds = time.monotonic() - began
        until = time.monotonic() + PATIENCE_S
        while self._under_way and time.monotonic() < until:  # noqa: ASYNC110 - a look now and then is all that the end needs
            await asyncio.sleep(0.05)
        told.lost += self._under_way
        told.codes, told.cpu_s = dict(self._codes), time.process_time()
        return told


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("rate", type=float)
    parser.add_argument("seconds", type=float)
    chosen = parser.parse_args()
    print(json.dumps(asdict(uvloop.run(Flood(chosen.port).run(chosen.rate, chosen.seconds)))), flush=True)


if __name__ == "__main__":
    main()
