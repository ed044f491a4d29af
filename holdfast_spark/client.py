"""The client of the reader: who to ask, with which token, and asking again while that can help (docs/reader.md).

`Client` keeps at most one connection, and is for one thread. Its requests may all be sent twice without another effect, which is why
every one of them is tried again when the connection breaks or the reader says that it is away or busy.

Holds: a scan yields every row of its range once, in order, or raises. A scan that was broken off is begun anew, and goes on behind the
last row it yielded only when everything up to there came again the same.
"""

from __future__ import annotations

import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from struct import unpack_from
from typing import Any, Final, Self

from isal.isal_zlib import crc32

from holdfast_spark.protocol import (
    VERSION,
    WAIT_S,
    Block,
    Bytes,
    Code,
    Kind,
    Refused,
    Tally,
    Wire,
    WireError,
    decode_block,
    encode_messages,
)

PORT: Final = 7883
CONNECT_S: Final = 5.0
PATIENCE_S: Final = 30.0
"""How long a request is tried again, from its beginning or from the last row that came. A reader that was killed is back in less."""
BUSY_S: Final = 600.0
"""How long a reader is asked again that answers, and has no room: then it is others' turn, and tasks that wait for theirs must not fail."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_PASSING: Final = frozenset({Code.AWAY.value, Code.BUSY.value})
_BROKEN_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Of TLS errors those that say no more than that the connection is over."""
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"})
_OTHER_NAME: Final = frozenset({62, 64})
"""What OpenSSL says of a certificate that is believed and names another host, or another address."""
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class Truncated(WireError):
    """A scan ended without its trailer, or the trailer counts something else than what came."""


class NotRepeatable(Exception):
    """A scan that was begun anew gave other rows than before: what it had yielded already cannot be trusted."""


class NoReader(ConnectionError):
    """No reader could be reached, or none could answer, for as long as is waited."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where readers are and how to come in. Travels to executors, so it holds the certificates, not their path."""

    brokers: tuple[tuple[str, int], ...]
    token: str = field(repr=False)
    tls: bool = False
    ca_pem: str | None = field(default=None, repr=False)
    """Whom to trust; None: whom the machine trusts. A reader's own certificate that is among these is believed by whatever name it is
    reached, as nobody else has its key."""

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.brokers)


@dataclass(frozen=True, slots=True)
class Unit:
    """What one SCAN reads: from <= position < to."""

    shard: int
    generation: int
    start: int
    stop: int


def parse_brokers(text: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host,[::1]:7883`. ValueError with one sentence."""
    found: list[tuple[str, int]] = []
    for piece in text.split(","):
        host, colon, port = piece.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = piece.strip(), str(PORT)
        if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535 or ("[" not in host and ":" in host):
            raise ValueError(f"brokers has {piece.strip()!r}; wanted is host:port, several of them with commas between")
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


class Client:
    """Requests to whichever of the brokers answers. ``close`` it, or use it as a context."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        who: str = "spark",
        patience_s: float = PATIENCE_S,
        busy_s: float = BUSY_S,
        wait_s: float = WAIT_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._who = who
        self._patience_s = patience_s
        self._busy_s = busy_s
        self._wait_s = wait_s
        self._sleep = sleep
        self._clock = clock
        # Executors begin with different brokers, so that the first of the list does not get all of them.
        self._next = random.randrange(len(endpoint.brokers))
        self._wire: Wire | None = None
        self._hello: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # ------------------------------------------------------------------------------------------ verbs

    def hello(self) -> dict[str, Any]:
        """The reader's: store, shards, release."""

        def once() -> dict[str, Any]:
            self._connected()
            return self._hello

        return self._again(once)

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """The answer to a request that is answered with one frame. Refused: the reader's error."""
        return self._again(lambda: self._exchange({"verb": verb, **fields}))

    def cuts(self) -> dict[str, Any]:
        return self.ask("CUTS")

    def find(self, ms: Sequence[int]) -> dict[str, Any]:
        return self.ask("FIND", ms=list(ms))

    def limit(self, start: Mapping[int, int], stop: Mapping[int, int], rows: int | None, value_bytes: int | None) -> dict[int, int]:
        answer = self.ask("LIMIT", **{"from": by_shard(start), "to": by_shard(stop), "rows": rows, "bytes": value_bytes})
        return {int(shard): int(cut) for shard, cut in answer["to"].items()}

    def plan(
        self,
        start: Mapping[int, int],
        stop: Mapping[int, int],
        filters: Sequence[str],
        clients: Sequence[str] | None,
        shards: Sequence[int] | None,
        rows_per_unit: int,
    ) -> dict[str, Any]:
        request = {"from": by_shard(start), "to": by_shard(stop), "filters": list(filters), "rows_per_unit": rows_per_unit}
        return self.ask("PLAN", **request, clients=_listed(clients), shards=_listed(shards))

    def lease(self, do: str, **fields: Any) -> list[dict[str, Any]]:
        leases: list[dict[str, Any]] = self.ask("LEASE", do=do, **fields)["leases"]
        return leases

    def ack(self, name: str, cuts: Mapping[int, int]) -> None:
        """Everything below the cuts is taken. Idempotent; a lease's place only grows."""
        self.ask("LEASE", do="ack", name=name, to=by_shard(cuts))

    def append(
        self,
        writer: str,
        batch: int,
        block: int,
        flags: Bytes,
        clients: Sequence[bytes],
        topics: Sequence[bytes],
        bodies: Sequence[bytes],
    ) -> dict[str, Any]:
        """Messages, taken once for (writer, batch, block) however often this is called."""
        parts = encode_messages(flags, clients, topics, bodies)
        request = {"verb": "APPEND", "writer": writer, "batch": batch, "block": block, "rows": len(flags)}

        def once() -> dict[str, Any]:
            wire = self._connected()
            wire.send_json(request)
            wire.send(Kind.MESSAGES, *parts)
            return _answer(wire.receive_json())

        return self._again(once)

    def scan(self, store: str, unit: Unit, filters: Sequence[str], clients: Sequence[str] | None = None) -> Iterator[Block]:
        """The blocks of a unit. Close the iterator when it is not read to its end."""
        request = {"verb": "SCAN", "store": store, "shard": unit.shard, "generation": unit.generation, "from": unit.start, "to": unit.stop}
        request |= {"filters": list(filters), "clients": _listed(clients)}
        done = _Emitted()
        pause = _Pauses(self)
        while True:
            try:
                for block in self._scan_once(request, done):
                    yield block
                    pause.progressed()
                return
            except (OSError, Refused) as error:
                self._lost(error)
                pause.after(error)
            except BaseException:
                # Whoever reads stopped half way (GeneratorExit too): the rest of the answer is still on this connection.
                self.close()
                raise

    # ------------------------------------------------------------------------------------------ below

    def _scan_once(self, request: Mapping[str, Any], done: _Emitted) -> Iterator[Block]:
        wire = self._connected()
        wire.send_json(request)
        tally = Tally()
        seen = _Emitted()
        while True:
            frame = wire.receive()
            if frame.kind != Kind.BLOCK:
                break
            block = decode_block(frame.body)
            tally.add(block.rows, len(block.values), block.crc)
            fresh = seen.up_to(block, done)
            if fresh is not None and fresh.rows:
                done.same_as(seen)
                yield fresh
        trailer = _answer(frame.json()).get("trailer")
        if not isinstance(trailer, dict):
            raise Truncated(f"a scan ended after {tally.rows} rows with something that is not its trailer")
        found = {name: trailer.get(name) for name in ("rows", "bytes", "blocks", "crc")}
        if found != tally.as_json():
            raise Truncated(f"a scan brought {tally.as_json()}, and its trailer says {found}")
        if seen.rows < done.rows:
            raise NotRepeatable(f"a scan begun anew has {seen.rows} rows, and {done.rows} had come before")

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        wire = self._connected()
        wire.send_json(request)
        return _answer(wire.receive_json())

    def _again(self, once: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        pause = _Pauses(self)
        while True:
            try:
                return once()
            except (OSError, Refused) as error:
                self._lost(error)
                pause.after(error)
            except BaseException:
                # Half a request, or half an answer, may be on the connection.
                self.close()
                raise

    def _lost(self, error: Exception) -> None:
        """End the connection, unless the reader only refused. One that is busy may have closed it, and another broker may not be."""
        if not isinstance(error, Refused) or error.code in (*_PASSING, Code.VERSION, Code.TOKEN):
            self.close()
            self._next += 1

    def _connected(self) -> Wire:
        if self._wire is not None:
            return self._wire
        host, port = self._endpoint.brokers[self._next % len(self._endpoint.brokers)]
        sock = _opened(self._endpoint, host, port)
        try:
            wire = Wire(sock, self._wait_s)
            wire.send_json({"hello": VERSION, "token": self._endpoint.token, "who": self._who})
            hello = _answer(wire.receive_json())
            if hello.get("hello") != VERSION:
                raise Refused(
                    Code.VERSION, f"the reader at {host}:{port} speaks version {hello.get('hello')!r}; wanted is {VERSION}", hello
                )
        except BaseException:
            with suppress(OSError):
                sock.close()
            raise
        self._hello = hello
        self._wire = wire
        return wire


def _opened(endpoint: Endpoint, host: str, port: int) -> socket.socket:
    """Connected, and in TLS where that is wanted. Raises OSError."""
    if not endpoint.tls:
        return _connection(host, port)
    context = ssl.create_default_context(cadata=endpoint.ca_pem)
    if endpoint.ca_pem is None:
        return context.wrap_socket(_connection(host, port), server_hostname=host)
    # Among those who are trusted may be the reader itself, and not who has signed its certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        return context.wrap_socket(_connection(host, port), server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in _OTHER_NAME:
            raise
        context.check_hostname = False
        sock = context.wrap_socket(_connection(host, port), server_hostname=host)
        trusted = {ssl.PEM_cert_to_DER_cert(each) for each in _PEM.findall(endpoint.ca_pem)}
        if sock.getpeercert(binary_form=True) in trusted:
            return sock
        sock.close()
        raise


def _connection(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), timeout=CONNECT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class _Pauses:
    """Between tries: longer each time, as long as patience lasts."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.progressed()

    def progressed(self) -> None:
        now = self._client._clock()
        self._until = now + self._client._patience_s
        self._busy_until = now + self._client._busy_s
        self._pause_s = _FIRST_PAUSE_S

    def after(self, error: OSError | Refused) -> None:
        """Wait, or raise when the error does not pass or patience is at its end."""
        if isinstance(error, Refused) and error.code not in _PASSING:
            raise error
        if isinstance(error, ssl.SSLError) and not isinstance(error, _BROKEN_OFF):
            # A certificate does not become right by waiting.
            raise NoReader(self._no_tls(error)) from error
        now, until = self._client._clock(), self._until
        pause = self._pause_s
        if isinstance(error, Refused):
            with suppress(TypeError, ValueError):
                pause = max(pause, min(float(error.more.get("retry_after", 0)), _LONGEST_PAUSE_S))
        if isinstance(error, Refused) and error.code == Code.BUSY:
            # Whoever is busy is there: what is away is waited for anew.
            self._until, until = now + self._client._patience_s, self._busy_until
        if now + pause > until:
            if isinstance(error, Refused):
                raise error
            raise NoReader(
                f"no answer from a reader at {self._client._endpoint} for {self._client._patience_s:.0f} s: {error}; "
                "is the broker up, and is that where its reader listens?"
            ) from error
        # A bit of chance, so that tasks that were broken off together do not come back together.
        self._client._sleep(pause * random.uniform(0.75, 1.0))
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _no_tls(self, error: ssl.SSLError) -> str:
        where = self._client._endpoint
        if error.reason in _NO_TLS:
            return f"the reader at {where} does not speak TLS, and option tls is true"
        return f"TLS with the reader at {where} failed: {getattr(error, 'verify_message', '') or error.reason or error}"


class _Emitted:
    """How many rows of a scan came and what they were: positions and lengths, whatever the blocks they came in."""

    __slots__ = ("digest", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.digest = (0, 0)

    def add(self, block: Block) -> None:
        self.rows += block.rows
        positions, lengths = self.digest
        # Two sums, since the cut between blocks may lie elsewhere the next time.
        self.digest = crc32(block.positions, positions), crc32(block.lengths, lengths)

    def same_as(self, other: _Emitted) -> None:
        """For who has compared both already, row by row."""
        self.rows, self.digest = other.rows, other.digest

    def up_to(self, block: Block, done: _Emitted) -> Block | None:
        """Count the block, which came (again); what of it is behind the rows that are done. None: nothing."""
        known = done.rows - self.rows
        if known <= 0:
            self.add(block)
            return block
        if known > block.rows:
            self.add(block)
            return None
        before, fresh = split(block, known)
        self.add(before)
        if self.digest != done.digest:
            raise NotRepeatable(f"a scan begun anew gave other rows than before among its first {self.rows}")
        self.add(fresh)
        return fresh


def split(block: Block, rows: int) -> tuple[Block, Block]:
    """The first so many rows, and the others."""
    first: list[tuple[int, int]] = []
    second: list[tuple[int, int]] = []
    left = rows
    for stream, count in block.runs:
        here = min(left, count)
        left -= here
        if here:
            first.append((stream, here))
        if count > here:
            second.append((stream, count - here))
    at = sum(unpack_from(f"<{rows}I", block.lengths))
    return (
        Block(rows, tuple(first), block.positions[: 8 * rows], block.lengths[: 4 * rows], block.values[:at], block.crc),
        Block(block.rows - rows, tuple(second), block.positions[8 * rows :], block.lengths[4 * rows :], block.values[at:], block.crc),
    )


def by_shard(cuts: Mapping[int, int]) -> dict[str, int]:
    return {str(shard): cut for shard, cut in sorted(cuts.items())}


def _listed(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _answer(found: dict[str, Any]) -> dict[str, Any]:
    if "error" in found:
        raise Refused.from_json(found)
    return found
