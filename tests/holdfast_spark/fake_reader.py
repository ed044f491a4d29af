"""A reader of a store in memory: the protocol of docs/reader.md over a real socket, for tests of the source without a broker.

The store is lists of messages by (shard, generation); tests change it while it is served. What a test may do to it: refuse the next so many
requests of a verb, cut the next answers after so many bytes, drop a generation. `asked` is what was asked, in order.

It shares the frame codec with the source and nothing else: plans, limits and trailers are made here, plainly.
"""

from __future__ import annotations

import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from holdfast_spark.protocol import Ended, Kind, Refused, Tally, Wire, WireError, encode_block
from holdfast_spark.pushing import matches
from shards.bulk import lengths_of
from tests.holdfast_spark.plain import Message

TOKEN = "secret-token"
CLASS = "default"


@dataclass(slots=True)
class Generation:
    since: int
    until: int | None = None
    messages: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class StoreInMemory:
    """shards[s][g]: a generation. ``cuts``: what is committed, by shard."""

    shards: dict[int, dict[int, Generation]]
    store: str = "site-a:2"
    cuts: dict[int, int] = field(default_factory=dict)
    wall: list[list[int]] = field(default_factory=list)
    gone: list[dict[str, Any]] = field(default_factory=list)
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, shard: int, *messages: Message) -> None:
        """Into the current generation; the cut goes behind the last."""
        generation = self.shards[shard][max(self.shards[shard])]
        generation.messages.extend(messages)
        self.cuts[shard] = max(self.cuts.get(shard, 0), *(each.position + 1 for each in messages))

    def roll(self, shard: int) -> None:
        newest = max(self.shards[shard])
        self.shards[shard][newest].until = self.cuts[shard]
        self.shards[shard][newest + 1] = Generation(self.cuts[shard])

    def drop(self, shard: int, generation: int) -> None:
        went = self.shards[shard].pop(generation)
        assert went.until is not None, "the current generation is not dropped"
        gap = {"shard": shard, "generation": generation, "class": CLASS, "from": went.since, "to": went.until, "reason": "retention"}
        self.gone.append(gap)


def one_shard(*messages: Message) -> StoreInMemory:
    found = StoreInMemory({0: {1: Generation(0)}}, cuts={0: 0})
    if messages:
        found.put(0, *messages)
    return found


class FakeReader:
    """Serves a store on 127.0.0.1 while the context lasts."""

    def __init__(self, store: StoreInMemory, *, block_rows: int = 3, tls: ssl.SSLContext | None = None) -> None:
        self.store = store
        self.block_rows = block_rows
        self.asked: list[dict[str, Any]] = []
        self.refusals: list[tuple[str, Refused]] = []
        """The next request of this verb gets this answer; the oldest first."""
        self.cuts_after: list[int] = []
        """The next scans are broken off after so many bytes of the answer."""
        self.mangle: Callable[[dict[str, Any]], dict[str, Any]] = lambda trailer: trailer
        reader = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                reader.serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

            def get_request(self) -> tuple[socket.socket, Any]:
                sock, peer = super().get_request()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return (sock if tls is None else tls.wrap_socket(sock, server_side=True)), peer

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # tests break connections on purpose

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def verbs(self) -> list[str]:
        return [request["verb"] for request in self.asked]

    # ------------------------------------------------------------------------------------------ connection

    def serve(self, sock: socket.socket) -> None:
        wire = Wire(sock)
        try:
            hello = wire.receive_json()
            if hello["token"] != TOKEN:
                return wire.send_json(Refused("TOKEN", "the token is not known").as_json())
            wire.send_json({"hello": 1, "store": self.store.store, "shards": len(self.store.shards), "release": "test"})
            while True:
                request = wire.receive_json(begins_within_s=None)
                self.asked.append(request)
                try:
                    self._refuse(request)
                    if request["verb"] == "SCAN":
                        self._scan(sock, wire, request)
                    else:
                        wire.send_json(getattr(self, f"_{request['verb'].lower()}")(request))
                except Refused as refused:
                    wire.send_json(refused.as_json())
        except (Ended, WireError):
            pass

    def _refuse(self, request: Mapping[str, Any]) -> None:
        for at, (verb, refused) in enumerate(self.refusals):
            if verb == request["verb"]:
                del self.refusals[at]
                raise refused

    # ------------------------------------------------------------------------------------------ verbs

    def _cuts(self, request: Mapping[str, Any]) -> dict[str, Any]:
        shards = {}
        for shard, generations in self.store.shards.items():
            described = [
                {"id": number, "class": CLASS, "since": each.since, "until": each.until, "rows": len(each.messages), "bytes": None}
                for number, each in generations.items()
            ]
            shards[str(shard)] = {
                "earliest": min(each.since for each in generations.values()),
                "cut": self.store.cuts[shard],
                "generations": described,
                "wall": self.store.wall,
                "gone": [gap for gap in self.store.gone if gap["shard"] == shard],
            }
        return {"store": self.store.store, "shards": shards}

    def _all(self, shard: int) -> list[Message]:
        found = [each for generation in self.store.shards[shard].values() for each in generation.messages]
        return sorted(found, key=lambda each: each.position)

    def _find(self, request: Mapping[str, Any]) -> dict[str, Any]:
        positions: dict[str, list[int]] = {}
        behind: dict[str, list[int | None]] = {}
        for shard in self.store.shards:
            rows = self._all(shard)
            positions[str(shard)] = [
                min((row.position for row in rows if row.at_ms >= ms), default=self.store.cuts[shard]) for ms in request["ms"]
            ]
            behind[str(shard)] = [max((row.position + 1 for row in rows if row.at_ms < ms), default=None) for ms in request["ms"]]
        return {"positions": positions, "behind": behind}

    def _limit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        begins, ends = request["from"], request["to"]
        rows, size = request["rows"], request["bytes"]
        found = dict(begins)
        taken = taken_bytes = 0
        while any(found[shard] < ends[shard] for shard in found):
            for shard in found:
                waiting = [each for each in self._all(int(shard)) if found[shard] <= each.position < ends[shard]]
                if not waiting:
                    found[shard] = ends[shard]
                    continue
                value = len(waiting[0].value())
                if taken and ((rows is not None and taken >= rows) or (size is not None and taken_bytes + value > size)):
                    return {"to": found}
                found[shard] = waiting[0].position + 1
                taken, taken_bytes = taken + 1, taken_bytes + value
        return {"to": found}

    def _plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        units: list[dict[str, Any]] = []
        gaps: list[dict[str, Any]] = []
        for name, begin in request["from"].items():
            shard, end = int(name), request["to"][name]
            if request["shards"] is not None and shard not in request["shards"]:
                continue
            for number, each in self.store.shards[shard].items():
                low, high = max(begin, each.since), min(end, end if each.until is None else each.until)
                rows = sorted(row.position for row in each.messages if low <= row.position < high)
                bounds = [low, *rows[request["rows_per_unit"] :: request["rows_per_unit"]], high]
                for first, second in pairwise(bounds):
                    if first < second:
                        count = sum(first <= row < second for row in rows)
                        units.append(
                            {
                                "shard": shard,
                                "generation": number,
                                "class": CLASS,
                                "from": first,
                                "to": second,
                                "sealed": False,
                                "rows": count,
                            }
                        )
            gaps += [
                {**gap, "from": max(begin, gap["from"]), "to": min(end, gap["to"])}
                for gap in self.store.gone
                if gap["shard"] == shard and gap["from"] < end and begin < gap["to"]
            ]
        return {"units": units, "gaps": gaps}

    def _lease(self, request: Mapping[str, Any]) -> dict[str, Any]:
        leases, cuts = self.store.leases, self.store.cuts
        name = str(request.get("name"))
        if request["do"] == "put" and name not in leases:
            earliest = {shard: min(each.since for each in generations.values()) for shard, generations in self.store.shards.items()}
            leases[name] = {"name": name, "to": {str(s): (cuts if request["start"] == "latest" else earliest)[s] for s in cuts}}
            leases[name] |= {key: request[key] for key in ("ttl_ms", "max_age_ms", "max_bytes", "block", "filters")}
        elif request["do"] == "ack":
            if name not in leases:
                raise Refused("REQUEST", f"there is no lease {name!r}")
            to = leases[name]["to"]
            leases[name]["to"] = {shard: max(cut, request["to"].get(shard, 0)) for shard, cut in to.items()}
        elif request["do"] == "drop":
            leases.pop(name, None)
        return {"leases": list(leases.values())}

    def _append(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("tests of the sink have a broker")

    def _scan(self, sock: socket.socket, wire: Wire, request: Mapping[str, Any]) -> None:
        if request["store"] != self.store.store:
            raise Refused("STORE", "another store", {"found": request["store"], "wanted": self.store.store})
        shard, number = request["shard"], request["generation"]
        if number not in self.store.shards[shard]:
            raise Refused("LOST", "messages are gone", {"gaps": [gap for gap in self.store.gone if gap["generation"] == number]})
        rows = [
            each
            for each in self.store.shards[shard][number].messages
            if request["from"] <= each.position < request["to"]
            and any(matches(wanted, each.topic) for wanted in request["filters"])
            and (request["clients"] is None or each.client in request["clients"])
        ]
        rows.sort(key=lambda each: (each.stream, each.position))
        tally = Tally()
        answer = bytearray()
        for at in range(0, len(rows), self.block_rows):
            part = rows[at : at + self.block_rows]
            runs: list[list[int]] = []
            for each in part:
                if runs and runs[-1][0] == each.stream:
                    runs[-1][1] += 1
                else:
                    runs.append([each.stream, 1])
            values = [each.value() for each in part]
            positions = b"".join(struct.pack("<Q", each.position) for each in part)
            crc, parts = encode_block([(stream, count) for stream, count in runs], [positions], [lengths_of(values)], values)
            tally.add(len(part), sum(map(len, values)), crc)
            answer += struct.pack(">IB", 1 + sum(map(len, parts)), Kind.BLOCK) + b"".join(parts)
        if self.cuts_after:
            cut = self.cuts_after.pop(0)
            trailer = _frame({"trailer": tally.as_json() | {"wall": self.store.wall}})
            sock.sendall((bytes(answer) + trailer)[:cut])
            sock.shutdown(socket.SHUT_RDWR)
            raise Ended("cut on purpose")
        sock.sendall(answer)
        wire.send_json(self.mangle({"trailer": tally.as_json() | {"wall": self.store.wall}}))


def _frame(value: dict[str, Any]) -> bytes:
    left, right = socket.socketpair()
    with left, right:
        Wire(left).send_json(value)
        return right.recv(65536)
