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

PATIENCE_S = 30.0


@dataclass(slots=True)
class Told:
    """codes: of CONNACK, and how often.  late_ms: from CONNECT to the slowest CONNACK; waiting: logins under way, at most."""

    sent: int = 0
    seconds: float = 0.0
    codes: dict[int, int] = field(default_factory=dict)
    late_ms: float = 0.0
    waiting: int = 0
    lost: int = 0


async def login(port: int, number: int, codes: Counter[int]) -> float:
    """Milliseconds to the answer.  Raises OSError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        user = "ann" if number % 2 else f"nobody-{number}"
        writer.write(packets.connect(5, f"wrong-{number}", username=user, password=b"wrong-%d" % number))
        began = time.monotonic()
        head = await asyncio.wait_for(reader.readexactly(4), PATIENCE_S)
        codes[head[3]] += 1
        return (time.monotonic() - began) * 1_000
    finally:
        writer.transport.abort()


async def flood(port: int, rate: float, seconds: float) -> Told:
    told, codes = Told(), Counter[int]()
    under_way: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        try:
            told.late_ms = max(told.late_ms, await login(port, number, codes))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            told.lost += 1

    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds:
        while told.sent < passed_s * rate:
            task = asyncio.create_task(one(told.sent))
            told.sent += 1
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        told.waiting = max(told.waiting, len(under_way))
        await asyncio.sleep(0.005)
    told.seconds = time.monotonic() - began
    await asyncio.gather(*under_way)
    told.codes = dict(codes)
    return told


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("rate", type=float)
    parser.add_argument("seconds", type=float)
    chosen = parser.parse_args()
    print(json.dumps(asdict(uvloop.run(flood(chosen.port, chosen.rate, chosen.seconds)))), flush=True)


if __name__ == "__main__":
    main()
