"""A reader that has its rows in memory, for testing what the gates do with a real one: hello, CUTS, PLAN, SCAN, one thread a connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast_spark.protocol import Code, Kind, Refused, Tally, Wire, encode_block
from shards.bulk import lengths_of
from tests.lake.proxy import Address

STORE = "toy:1"
TOKEN = "toy"
ROWS_PER_BLOCK = 50


@dataclass(slots=True)
class ToyReader:
    """One shard. ``generations``: id -> stream -> (position, value)s. ``spoil`` sees the rows of each SCAN before they are sent."""

    generations: dict[int, dict[int, list[tuple[int, bytes]]]]
    cut: int
    lost: set[int] = field(default_factory=set)
    scans: int = 0

    def spoil(self, rows: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
        return rows

    # ---- answers

    def cuts(self) -> dict[str, Any]:
        listed = [{"id": number} for number in self.generations if number not in self.lost]
        return {"store": STORE, "shards": {"0": {"earliest": 0, "cut": self.cut, "generations": listed}}}

    def plan(self, request: dict[str, Any]) -> dict[str, Any]:
        since, until = request["from"]["0"], request["to"]["0"]
        units = []
        for number, streams in self.generations.items():
            positions = [position for rows in streams.values() for position, _ in rows if since <= position < until]
            if positions and number not in self.lost:
                units.append(
                    {"shard": 0, "generation": number, "from": min(positions), "to": max(positions) + 1, "sealed": True, "rows": 1}
                )
        return {"units": units, "gaps": []}

    def scan(self, wire: Wire, request: dict[str, Any]) -> None:
        if request["generation"] in self.lost:
            raise Refused(Code.LOST, "it is gone", {"gaps": []})
        self.scans += 1
        streams = self.generations[request["generation"]]
        rows = [
            (stream, position, value)
            for stream, each in streams.items()
            for position, value in each
            if request["from"] <= position < request["to"]
        ]
        rows = self.spoil(rows)
        tally = Tally()
        for at in range(0, len(rows), ROWS_PER_BLOCK):
            part = rows[at : at + ROWS_PER_BLOCK]
            runs: list[tuple[int, int]] = []
            for stream, _, _ in part:
                runs = [*runs[:-1], (stream, runs[-1][1] + 1)] if runs and runs[-1][0] == stream else [*runs, (stream, 1)]
            positions = b"".join(position.to_bytes(8, "little") for _, position, _ in part)
            values = [value for _, _, value in part]
            crc, parts = encode_block(runs, [positions], [lengths_of(values)], values)
            wire.send(Kind.BLOCK, *parts)
            tally.add(len(part), sum(map(len, values)), crc)
        wire.send_json({"trailer": {**tally.as_json(), "wall": []}})

    def serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = Wire(connection)
        with suppress(OSError):
            wire.receive_json()
            wire.send_json({"hello": 1, "store": STORE, "shards": 1, "release": "toy"})
            while True:
                request = wire.receive_json(begins_within_s=None)
                try:
                    if request["verb"] == "SCAN":
                        self.scan(wire, request)
                    else:
                        wire.send_json(self.cuts() if request["verb"] == "CUTS" else self.plan(request))
                except Refused as refused:
                    wire.send_json(refused.as_json())
        wire.close()


@contextmanager
def serving(reader: ToyReader) -> Iterator[Address]:
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=reader.serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[:2]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
