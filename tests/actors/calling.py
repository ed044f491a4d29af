"""Somebody who speaks to a reader by hand, frame by frame: what a client that is not ours could do."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from holdfast_spark.protocol import VERSION, Kind, Tally, Wire, decode_block, encode_messages
from shards.messages import header
from tests.actors.served import Said, Served

WAIT_S = 60.0
HEAD = struct.Struct(">IB")
EVERYTHING = 1 << 62


class Got(NamedTuple):
    """A row of a scan, with its message taken apart."""

    stream: int
    position: int
    topic: bytes
    payload: bytes
    client: bytes


class Scanned(NamedTuple):
    rows: list[Got]
    raw: bytes
    """All positions and values, one after the other."""
    sizes: list[tuple[int, int]]
    """(rows, bytes of values) of each block."""
    end: dict[str, Any]
    """The trailer, or the error."""


class Caller:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.wire = Wire(sock, WAIT_S)

    def hello(self, token: object, version: object = VERSION) -> dict[str, Any]:
        self.wire.send_json({"hello": version, "token": token, "who": "a test"})
        return self.wire.receive_json()

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        self.wire.send_json({"verb": verb, **{name.rstrip("_"): value for name, value in fields.items()}})
        return self.wire.receive_json()

    def append(self, *messages: Said, writer: str = "w", batch: int = 0, block: int = 0, rows: int | None = None) -> dict[str, Any]:
        self.wire.send_json(
            {"verb": "APPEND", "writer": writer, "batch": batch, "block": block, "rows": len(messages) if rows is None else rows}
        )
        flags = bytes(2 * each.qos | each.retain for each in messages)
        bodies = [each.properties + each.payload for each in messages]
        self.wire.send(Kind.MESSAGES, *encode_messages(flags, [m.client for m in messages], [m.topic for m in messages], bodies))
        return self.wire.receive_json()

    def cuts(self) -> dict[int, dict[str, Any]]:
        return {int(shard): found for shard, found in self.ask("CUTS")["shards"].items()}

    def cut(self, shard: int = 0) -> int:
        return int(self.cuts()[shard]["cut"])

    def plan(self, *filters: str, rows_per_unit: int = EVERYTHING, clients: list[str] | None = None) -> list[dict[str, Any]]:
        """Of everything there is."""
        cuts = {str(shard): found["cut"] for shard, found in self.cuts().items()}
        answer = self.ask(
            "PLAN", from_=dict.fromkeys(cuts, 0), to=cuts, filters=list(filters), clients=clients, shards=None, rows_per_unit=rows_per_unit
        )
        assert "units" in answer, answer
        units: list[dict[str, Any]] = answer["units"]
        return units

    def scan(self, broker: Served, unit: dict[str, Any], *filters: str, clients: list[str] | None = None) -> Scanned:
        self.wire.send_json(
            {
                "verb": "SCAN", "store": broker.store, "shard": unit["shard"], "generation": unit["generation"],
                "from": unit["from"], "to": unit["to"], "filters": list(filters), "clients": clients,
            }
        )  # fmt: skip
        return self.scanned()

    def scanned(self) -> Scanned:
        rows: list[Got] = []
        raw: list[bytes] = []
        sizes: list[tuple[int, int]] = []
        tally = Tally()
        while (frame := self.wire.receive()).kind == Kind.BLOCK:
            block = decode_block(frame.body)
            tally.add(block.rows, len(block.values), block.crc)
            sizes.append((block.rows, len(block.values)))
            raw += [bytes(block.positions), bytes(block.values)]
            streams = [stream for stream, count in block.runs for _ in range(count)]
            positions = struct.unpack(f"<{block.rows}Q", block.positions)
            at = 0
            for stream, position, length in zip(streams, positions, struct.unpack(f"<{block.rows}I", block.lengths), strict=True):
                _, _, client, topic, body = header(bytes(block.values[at : at + length]))
                rows.append(Got(stream, position, topic, body[1:], client))
                at += length
        end = frame.json()
        if "trailer" in end:
            assert tally.as_json().items() <= end["trailer"].items(), (tally, end)
        return Scanned(rows, b"".join(raw), sizes, end)

    def everything(self, broker: Served, *filters: str, rows_per_unit: int = EVERYTHING, clients: list[str] | None = None) -> list[Got]:
        """All rows of all units of a plan."""
        found: list[Got] = []
        for unit in self.plan(*filters, rows_per_unit=rows_per_unit, clients=clients):
            scanned = self.scan(broker, unit, *filters, clients=clients)
            assert "trailer" in scanned.end, scanned.end
            found += scanned.rows
        return found

    def is_over(self) -> bool:
        """The reader has closed it."""
        self.socket.settimeout(WAIT_S)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_refused(self) -> bool:
        """The reader ends it without a frame that could be read."""
        self.socket.settimeout(WAIT_S)
        try:
            return not self.socket.recv(4096).startswith(b"\0")
        except ConnectionError:
            return True


@contextmanager
def stranger(broker: Served) -> Iterator[Caller]:
    """Who has said nothing yet."""
    with socket.create_connection((broker.host, broker.port), WAIT_S) as sock:
        yield Caller(sock)


@contextmanager
def caller(broker: Served, token: str = "") -> Iterator[Caller]:
    with stranger(broker) as found:
        answer = found.hello(token or broker.token)
        assert answer["store"] == broker.store, answer
        yield found
