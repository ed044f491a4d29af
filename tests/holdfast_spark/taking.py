"""A reader that takes messages and nothing else: APPEND of docs/reader.md over a real socket, the rows of writers as the shard has them.

It can be told to lose answers: the connection is cut after a block was taken, as when a process dies at the worst moment.
"""

from __future__ import annotations

import socketserver
import threading
from types import TracebackType
from typing import Any, Self

from holdfast_spark.protocol import Code, Ended, Kind, Messages, Refused, Wire, WireError, decode_messages

TOKEN = "the-token"
Block = tuple[str, int, int]
"""(writer, batch, block)."""


class TakingReader:
    """`taken`: blocks in the order in which they were taken; `repeated`: what came once more. Both may be looked at while it serves."""

    def __init__(self) -> None:
        self.taken: list[tuple[Block, Messages]] = []
        self.repeated: list[Block] = []
        self.refusals: list[Refused] = []
        """What the next appends are answered with."""
        self.refuse_once: set[int] = set()
        """Blocks of these numbers are refused when they come for the first time, to each writer: its task fails there."""
        self._refused: set[Block] = set()
        self.lose_answers = 0
        """To how many of the next blocks, once they are taken, the connection ends instead."""
        self._rows: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                wire = Wire(self.request)
                try:
                    outer._serve(wire)
                except WireError:
                    pass
                finally:
                    wire.close()

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def options(self) -> dict[str, str]:
        return {"brokers": self.brokers, "token": TOKEN}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def rows(self) -> list[tuple[int, bytes, bytes, bytes]]:
        """(flags, client, topic, body) of everything that was taken."""
        with self._lock:
            return [row for _, each in self.taken for row in zip(bytes(each.flags), each.clients, each.topics, each.bodies, strict=True)]

    def payloads(self) -> list[bytes]:
        """Of messages without properties."""
        return [body[1:] for *_, body in self.rows()]

    def _serve(self, wire: Wire) -> None:
        hello = wire.receive_json()
        if hello["token"] != TOKEN:
            wire.send_json(Refused(Code.TOKEN, "the token is not known here").as_json())
            return
        wire.send_json({"hello": 1, "store": "site-a:1", "shards": 1, "release": "0"})
        while True:
            try:
                request = wire.receive_json(begins_within_s=None)
            except Ended:
                return
            frame = wire.receive()
            assert frame.kind == Kind.MESSAGES
            answer, answered = self._append(request, decode_messages(frame.body))
            if not answered:
                return
            wire.send_json(answer)

    def _append(self, request: dict[str, Any], messages: Messages) -> tuple[dict[str, Any], bool]:
        block = (request["writer"], request["batch"], request["block"])
        with self._lock:
            if self.refusals:
                return self.refusals.pop(0).as_json(), True
            if block[2] in self.refuse_once and block not in self._refused:
                self._refused.add(block)
                return Refused(Code.FULL, "refused on purpose").as_json(), True
            if block[1:] <= self._rows.get(block[0], (-1, -1)):
                self.repeated.append(block)
                return {"stored": 0, "repeated": True}, True
            assert request["rows"] == len(messages.flags)
            self.taken.append((block, messages))
            self._rows[block[0]] = block[1:]
            if self.lose_answers:
                self.lose_answers -= 1
                return {}, False
            return {"stored": len(messages.flags), "repeated": False}, True
