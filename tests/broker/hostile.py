"""One connection that sends a case to a real broker, waits for what has to come of it, and has it judged."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Disconnect, Item, Pingreq, Pingresp
from tests.fuzz.cases import Case
from tests.fuzz.frames import REQUEST, Answers, frame
from tests.fuzz.inside import CONNECT_BYTES_MAX, PACKET_BYTES_MAX
from tests.fuzz.judge import ANSWER_BYTES_MAX, Seen, Unjust, judged

PATIENCE_S = 20.0
_PING = encode(4, Pingreq())
_PINGS = (_PING, frame(_PING))
"""Over TCP, over WebSocket."""


@dataclass(slots=True)
class Expected:
    """What our own decoder says of the bytes: only for how long to wait, and for what."""

    version: int | None
    failed: str | None
    held: int
    items: list[Item] = field(default_factory=list)

    @property
    def leaves(self) -> bool:
        return any(isinstance(item, Disconnect) for item in self.items)

    @property
    def ends(self) -> bool:
        """The server closes by itself."""
        return self.failed is not None or self.leaves


def expected(given: Case) -> Expected:
    decoder = Decoder(None, PACKET_BYTES_MAX, connect_bytes_max=CONNECT_BYTES_MAX)
    try:
        items = decoder.feed(given.wire)
    except DecodeError as error:
        return Expected(decoder.version, error.detail, 0, error.items)
    return Expected(decoder.version, None, decoder.held_bytes, items)


class Hostile(asyncio.Protocol):
    """A connection to the broker: `one` says what goes over it, all that comes back is kept."""

    def __init__(self, version: int | None, web: bool, patience_s: float) -> None:
        self._patience_s = patience_s
        self._web = Answers() if web else None
        self._answers = Decoder(version, ANSWER_BYTES_MAX, role="client") if version in (3, 4, 5) else None
        self._transport: asyncio.Transport | None = None
        self._wanted: tuple[type[Item], int] | None = None
        self._waits: asyncio.Future[None] | None = None
        self._came: Counter[type[Item]] = Counter()
        self.senseless: Exception | None = None
        """What came is no answer of a server, so there is nothing more to wait for."""
        self._told_off = False
        """It was told that it is closed: nothing but the close follows."""
        self.out = b""
        self.closed = self.reset = False
        self.waited_s = 0.0
        """The longest of its waits."""

    # ---------------------------------------------------------------- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports in everything but the class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            if self._web is not None:
                data = self._web.feed(data)
            self.out += data
            if self._answers is not None:
                self._take(self._answers.feed(data))
        except (ValueError, DecodeError) as error:
            self.senseless = error
        self._look()

    def eof_received(self) -> bool:
        """What is still to be sent is sent all the same."""
        self.closed = True
        self._look()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.reset |= exc is not None
        self._look()

    # ---------------------------------------------------------------- for `one`
    async def send(self, pieces: tuple[bytes, ...]) -> None:
        """Each goes out by itself, not together with what follows."""
        transport = self._transport
        assert transport is not None
        for piece in pieces:
            if transport.is_closing():
                return
            transport.write(piece)
            await asyncio.sleep(0)

    async def until(self, kind: type[Item] | None, count: int = 1) -> None:
        """Until so many such answers have come, or the end; None: until the end."""
        self._wanted = None if kind is None else (kind, count)
        if self._settled():
            return
        self._waits = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._patience_s):
                await self._waits
        except TimeoutError:
            missed = kind.__name__ if kind else "a close"
            raise Unjust(f"{missed} did not come within {self._patience_s} s; so far {self.out!r}") from None
        self.waited_s = max(self.waited_s, time.monotonic() - began)

    def leave(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    # ---------------------------------------------------------------- within
    def _take(self, answers: list[Item]) -> None:
        for each in answers:
            self._came[type(each)] += 1
            self._told_off |= isinstance(each, Disconnect) or (isinstance(each, Connack) and each.reason != 0)

    def _settled(self) -> bool:
        if self.closed or self.senseless is not None:
            return True
        return self._wanted is not None and not self._told_off and self._came[self._wanted[0]] >= self._wanted[1]

    def _look(self) -> None:
        if self._waits is not None and not self._waits.done() and self._settled():
            self._waits.set_result(None)


class Ports(NamedTuple):
    """web: 0 where the broker does not listen for it; those cases go over TCP then."""

    tcp: int
    web: int


async def one(ports: Ports, given: Case, patience_s: float = PATIENCE_S) -> tuple[Seen, float]:
    """What came back, and the longest wait for something, in seconds.  Raises Unjust, or whatever the code raised; the case is named
    either way."""
    if given.web and not ports.web:
        given = replace(given, web=False, spoiled=False, pieces=(given.wire,))
    began = time.monotonic()
    try:
        return await _one(ports, given, patience_s)
    except Exception as error:
        error.add_note(f"after {time.monotonic() - began:.1f} s, {given}")
        raise


async def _one(ports: Ports, given: Case, patience_s: float) -> tuple[Seen, float]:
    wanted = expected(given)
    port = ports.web if given.web else ports.tcp
    loop = asyncio.get_running_loop()
    _, hostile = await loop.create_connection(lambda: Hostile(wanted.version, given.web, patience_s), "127.0.0.1", port)
    try:
        pinged = await _through(hostile, given, wanted)
    finally:
        hostile.leave()
    if isinstance(hostile.senseless, ValueError):
        raise hostile.senseless  # Of a WebSocket; what is no MQTT is found by the judge.
    if given.spoiled:
        return Seen(None, b"", True), hostile.waited_s
    left = hostile.reset or wanted.leaves
    # One that is served is left while messages of its session are still on their way.
    whole = hostile.closed and not hostile.reset
    seen = Seen(wanted.version, hostile.out, hostile.closed, wanted.failed, wanted.held, pinged, left, whole)
    if not (hostile.reset and not seen.out):
        judged(given, seen)
    return seen, hostile.waited_s


async def _through(hostile: Hostile, given: Case, wanted: Expected) -> bool:
    """Whether a PINGREQ went out last."""
    await hostile.send((REQUEST, *given.pieces) if given.web else given.pieces)
    if given.spoiled:
        return False  # It may wait for the rest of a frame for ever.
    if wanted.ends:
        await hostile.until(None)
        return False
    if wanted.version is None:
        return False
    # A CONNECT was understood; what follows it may be half a packet.
    await hostile.until(Connack)
    if wanted.held or hostile.closed:
        return False
    await hostile.send((_PINGS[given.web],))
    await hostile.until(Pingresp, 1 + sum(isinstance(item, Pingreq) for item in wanted.items))
    return True
