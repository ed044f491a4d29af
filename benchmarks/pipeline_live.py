"""What a steady publisher gets done while somebody scans at full speed: commits, as publishers see them.

A publisher sends 32 messages at QoS 1, waits until all are acknowledged, waits a millisecond, and so on: one such round is a commit, and is
as long as the shard makes it. Windows with and without a scan take turns, so that both meet the same machine.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import IO

PER_COMMIT = 32
PAUSE_S = 0.001
PAYLOAD = b'{"ts":1800000000000,"v":21.537,"unit":"C","id":"' + b"5a" * 40 + b'"}'
ANSWER_S = 30.0


def _text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def _packet(first: int, body: bytes) -> bytes:
    size, length = bytearray(), len(body)
    while True:
        length, low = divmod(length, 128)
        size.append(low | (128 if length else 0))
        if not length:
            return bytes((first,)) + bytes(size) + body


class Commits:
    """One MQTT 3.1.1 connection that makes commits until told to stop; ``count`` grows."""

    def __init__(self, port: int, client: bytes, topic: bytes = b"live/commit") -> None:
        self.count = 0
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._socket.settimeout(ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(_packet(0x10, _text(b"MQTT") + bytes((4, 2)) + struct.pack(">H", 0) + _text(client)))
        if self._read(4) != b"\x20\x02\x00\x00":
            raise ConnectionError(f"the broker refused the client {client!r}")
        bodies = [_text(topic) + struct.pack(">H", packet_id) + PAYLOAD for packet_id in range(1, PER_COMMIT + 1)]
        self._burst = b"".join(_packet(0x32, body) for body in bodies)
        self._stopping = False
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="commits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Raises what ended it, if anything did."""
        self._stopping = True
        self._thread.join()
        self._socket.close()
        if self._failed is not None:
            raise self._failed

    def in_window(self, seconds: float) -> float:
        """Commits a second over so long."""
        before, began = self.count, time.perf_counter()
        time.sleep(seconds)
        return (self.count - before) / (time.perf_counter() - began)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._socket.sendall(self._burst)
                # A PUBACK of 3.1.1 has four bytes.
                self._read(4 * PER_COMMIT)
                self.count += 1
                time.sleep(PAUSE_S)
        except Exception as error:
            self._failed = error

    def _read(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            data = self._socket.recv(count - len(found))
            if not data:
                raise ConnectionError("the broker ended the connection of the steady publisher")
            found += data
        return bytes(found)


class Puller:
    """A process that scans everything again and again while it is told to (``python -m benchmarks.pipeline_live BROKERS TOKEN``)."""

    def __init__(self, brokers: str, token: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pipeline_live", brokers, token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._word()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self) -> None:
        self._say("scan")

    def end(self) -> dict[str, float]:
        """Rows and seconds of the window."""
        self._say("pause")
        return self._word()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _word(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that scans has ended with code {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found


@dataclass(frozen=True, slots=True)
class Shared:
    """Commits a second in windows without and with a scan, and how fast that scan was."""

    alone: tuple[float, ...]
    beside: tuple[float, ...]
    rows_per_s: float

    @property
    def part(self) -> float:
        return median(self.beside) / median(self.alone)


def windows(port: int, brokers: str, token: str, client: str, count: int, seconds: float, say: Callable[[str], None]) -> Shared:
    puller = Puller(brokers, token)
    try:
        commits = Commits(port, client.encode())
        commits.in_window(seconds / 2)
        alone, beside, rates = [], [], []
        for number in range(count):
            alone.append(commits.in_window(seconds))
            puller.begin()
            time.sleep(seconds / 10)
            beside.append(commits.in_window(seconds))
            told = puller.end()
            if not told["rows"]:
                raise RuntimeError(f"nothing was scanned in window {number + 1}, beside which {beside[-1]:.0f} commits/s were made")
            rates.append(told["rows"] / told["seconds"])
            say(f"window {number + 1}: {alone[-1]:.0f} commits/s alone, {beside[-1]:.0f} beside a scan of {rates[-1]:.0f} rows/s")
        commits.stop()
        return Shared(tuple(alone), tuple(beside), median(rates))
    finally:
        puller.close()


def pull(brokers: str, token: str, words: IO[str]) -> None:
    from benchmarks.pipeline_load import sealed
    from holdfast_spark.client import Client, Endpoint, parse_brokers

    scanning = threading.Event()
    paused = threading.Event()
    rows = 0

    def work() -> None:
        nonlocal rows
        with Client(Endpoint(parse_brokers(brokers), token), who="benchmark") as client:
            found = sealed(client)
            while True:
                for unit in found.units:
                    for block in client.scan(found.store, unit, ["#"]):
                        rows += block.rows
                        if not scanning.is_set():
                            paused.set()
                            scanning.wait()
                            paused.clear()

    threading.Thread(target=work, daemon=True).start()
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    began, before = 0.0, 0
    for line in words:
        if line.strip() == "scan":
            began, before = time.perf_counter(), rows
            scanning.set()
        else:
            scanning.clear()
            sys.stdout.write(json.dumps({"rows": rows - before, "seconds": time.perf_counter() - began}) + "\n")
            sys.stdout.flush()
            paused.wait(ANSWER_S)


if __name__ == "__main__":
    pull(sys.argv[1], sys.argv[2], sys.stdin)
