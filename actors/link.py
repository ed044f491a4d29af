"""A link between two parts, and its form between two processes: a framed socket, with a proof of the cluster's secret at both ends.
Of parts that share a process it is actors.direct's; their owners do not see which.

A frame is `u32 length, big-endian | bytes`; what the bytes mean is the owner's.  Before the first frame both ends prove that
they know the secret, by an HMAC over the other's nonce, and say their role, their name with incarnation, and the versions of links that
they speak (actors.link_version); with none in common the link is refused.  The length `_BEAT` has no bytes: over TCP each end sends it
every Wire.beat_seconds, since a machine that lost its power says nothing.

Always holds:
1. an owner hears link_up before the first frame and link_down after the last, once each (of both forms);
2. nothing is delivered from a peer that has not proved the secret;
3. a peer that does not read is cut off when WRITE_BYTES_MAX wait for it; numbered frames are sent again after it reconnects;
4. over TCP a peer that is silent for SILENT_BEATS_MAX beats of this end's loop is cut off; a loop that was held up itself counts one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from struct import Struct
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import msgpack
import structlog

from actors.endpoints import Endpoint
from actors.link_version import NoCommonVersion, Spoken, agree
from actors.wire import SILENT_BEATS_MAX, Wire, said_of

FRAME_BYTES_MAX = 64 << 20
WRITE_BYTES_MAX = 128 << 20
PROOF_BYTES_MAX = 4096
"""Of a frame before the proof; a longer one is not waited for."""
HANDSHAKE_SECONDS = 5.0
_LENGTH = Struct(">I")
_BEAT_LENGTH = 0xFFFFFFFF
_BEAT = _LENGTH.pack(_BEAT_LENGTH)
_NO_PROOF = f"it did not prove the secret of this broker within {HANDSHAKE_SECONDS:g} s"
_TLS_RECORDS = frozenset({0x1503, 0x1603})
"""How an alert and a handshake of TLS begin."""
CUT_OFF = "it is cut off on purpose"
_link_numbers = count(1)

Carried: TypeAlias = bytes | tuple[Any, ...]
"""A frame as it comes: its bytes or, of a part that shares this process, the frame itself, a named tuple that nobody changes."""
F = TypeVar("F", bound=tuple[Any, ...])

log = structlog.get_logger(__name__)
admits: Callable[[Link], bool] | None = None
"""Asked of each link when it has proved the secret; None: all of them, which is the rule (actors.chaos.installing)."""


class LinkOwner(Protocol):
    """Whoever owns links.  All calls come on the loop."""

    def link_up(self, link: Link) -> None: ...

    def link_frame(self, link: Link, data: Any) -> None:
        """data: bytes; a Carried where the other end hands frames on."""

    def link_down(self, link: Link) -> None: ...


class Link(ABC):
    """One end of one link, from connection to loss.  `number` is never used twice in a process.

    role, name: of this end.
    cause: why the other end was refused, or has refused this one, before it was up; empty: it was not, or nothing is known.
    version: of what is said on it, once it is up; nothing of a newer one may be sent.
    """

    def __init__(self, owner: LinkOwner, role: str, name: str) -> None:
        self.number = next(_link_numbers)
        self.role = role
        self.name = name
        self.peer_role = ""
        self.peer_name = ""
        self.up = False
        self.address = ""
        self.cause = ""
        self.version = 0
        self._owner = owner

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write one frame; dropped silently when the link is gone (link_down says so)."""

    @abstractmethod
    def hand_on(self, frame: F, encode: Callable[[F], bytes]) -> None:
        """The same of a frame that its sender does not change any more, not even a list in it: it may be heard as it is."""

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """What waits for the peer to read it; bounded by WRITE_BYTES_MAX."""

    @abstractmethod
    def close(self, why: str) -> None:
        """Its owner hears link_down later, never within this call."""

    @abstractmethod
    def hold(self) -> None:
        """Read nothing more from it until `release`."""

    @abstractmethod
    def release(self) -> None: ...

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Not connected, or not any more: nothing will be heard of it."""


class FramedLink(Link, asyncio.Protocol):
    """One socket."""

    def __init__(
        self,
        owner: LinkOwner,
        wire: Wire,
        role: str,
        name: str,
        dials: bool,
        closed: Callable[[Link], None],
        opened: Callable[[Link], None] | None = None,
    ) -> None:
        """opened, closed: called once each, or both never when the handshake of TLS fails."""
        super().__init__(owner, role, name)
        self._wire = wire
        self._dials = dials
        self._closed = closed
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._nonce = secrets.token_bytes(16)
        self._theirs: Spoken | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._beats: asyncio.TimerHandle | None = None
        self._silent = 0
        self._frame_bytes_max = PROOF_BYTES_MAX
        self._chunks: list[bytes] = []
        self._held = 0
        self._need = 4

    # ------------------------------------------------------------------ for the owner

    def send(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(_LENGTH.pack(len(data)) + data)
        if transport.get_write_buffer_size() > WRITE_BYTES_MAX:
            self.close(f"{transport.get_write_buffer_size()} bytes wait for a peer that does not read, {WRITE_BYTES_MAX} are allowed")

    def hand_on(self, frame: F, encode: Callable[[F], bytes]) -> None:
        if self._transport is not None:
            self.send(encode(frame))

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, why: str) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            log.info("link.closed", peer=self.peer_name, role=self.peer_role, cause=why)
            transport.abort()

    def abandon(self, why: str) -> None:
        """Close it, and be lost at once: for who has given up dialling.  When that is in the turn in which the connection was made, uvloop
        closes it by itself, and never says that it is lost."""
        if self._transport is not None:
            self.close(why)
            self.connection_lost(None)

    def hold(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def release(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def lost(self) -> bool:
        return self._transport is None

    # ------------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports in everything but the class.
        self._transport = transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._refuse, _NO_PROOF)
        self.address = peer_of(transport)
        # Of a link in TLS it is the socket below.  Both loops set TCP_NODELAY by themselves.
        below = transport.get_extra_info("socket")
        if below is not None and below.family in (socket.AF_INET, socket.AF_INET6):
            self._beats = asyncio.get_running_loop().call_later(self._wire.beat_seconds, self._beat)
        if self._opened is not None:
            self._opened(self)
        self._send_row(self._nonce, *self._wire.speaks)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return  # abandoned
        for timer in (self._deadline, self._beats):
            if timer is not None:
                timer.cancel()
        self._transport = None
        if exc is not None and not self.peer_name:
            self.cause = self.cause or said_of(exc)
        if self.up:
            self.up = False
            self._owner.link_down(self)
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        self._silent = 0
        if self._chunks:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._need:
                return
            data = b"".join(self._chunks)
        at, end = 0, len(data)
        need = 4
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self._frame_bytes_max:
                if length == _BEAT_LENGTH:
                    at += 4
                    continue
                self._refuse_length(length)
                return
            if end - at - 4 < length:
                need = 4 + length
                break
            frame = data[at + 4 : at + 4 + length]
            at += 4 + length
            if self.up:
                self._owner.link_frame(self, frame)
            elif not self._shake(frame):
                return
            if self._transport is None or self._transport.is_closing():
                return
        rest = data[at:]
        self._chunks = [rest] if rest else []
        self._held, self._need = len(rest), need

    def _refuse_length(self, length: int) -> None:
        if self.up:
            self.close(f"frame of {length} bytes found, at most {FRAME_BYTES_MAX} are allowed")
        elif length >> 16 in _TLS_RECORDS:
            self._refuse("it speaks TLS, and this end has no cluster.tls")
        else:
            self._refuse("what it says is no link's")

    def _beat(self) -> None:
        self._silent += 1
        if self._silent > SILENT_BEATS_MAX:
            self.close(f"nothing came from it for {SILENT_BEATS_MAX * self._wire.beat_seconds:g} s")
        elif self._transport is not None:
            if self.up:
                self._transport.write(_BEAT)
            self._beats = asyncio.get_running_loop().call_later(self._wire.beat_seconds, self._beat)

    # ------------------------------------------------------------------ handshake

    def _refuse(self, cause: str) -> None:
        self.cause = cause
        if self._transport is not None:
            self._transport.abort()

    def _send_row(self, *fields: object) -> None:
        assert self._transport is not None
        data = bytes(msgpack.packb(fields))
        self._transport.write(_LENGTH.pack(len(data)) + data)

    def _proof(self, side: bytes, nonce: bytes, role: str, name: str, spoken: Spoken) -> bytes:
        said = (side, nonce, role.encode(), name.encode(), b"%d %d" % spoken)
        return hmac.new(self._wire.secret, b"\0".join(said), hashlib.sha256).digest()

    def _shake(self, frame: bytes) -> bool:
        """Rows: [nonce, oldest, newest] from both at once, then [role, name, proof over the other's nonce] from both."""
        role, name, good = "", "", False
        try:
            row = msgpack.unpackb(frame, raw=False)
            if self._theirs is None:
                nonce, oldest, newest = row
                self._theirs = Spoken(int(oldest), int(newest))
                side = b"client" if self._dials else b"server"
                self._send_row(self.role, self.name, self._proof(side, bytes(nonce), self.role, self.name, self._wire.speaks))
                return True
            role, name, proof = row
            side = b"server" if self._dials else b"client"
            good = hmac.compare_digest(self._proof(side, self._nonce, role, name, self._theirs), proof)
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            self._refuse(f"it did not prove the secret of this broker: {error}")
            return False
        if not good:
            self._refuse("it did not prove the secret of this broker: the secrets differ")
            return False
        try:
            self.version = agree(self._wire.speaks, self._theirs)
        except NoCommonVersion as error:
            self._refuse(str(error))
            return False
        if self._deadline is not None:
            self._deadline.cancel()
        self.peer_role, self.peer_name = role, name
        if admits is not None and not admits(self):
            self._refuse(CUT_OFF)
            return False
        self.up = True
        self._frame_bytes_max = FRAME_BYTES_MAX
        self._owner.link_up(self)
        return True


def taken(data: Carried, decode: Callable[[bytes], F]) -> F:
    """The frame.  Raises ValueError, as decode does."""
    if isinstance(data, bytes):
        return decode(data)
    handed: Any = data
    frame: F = handed
    return frame


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Where the other end of a TCP connection is; of a unix socket nothing."""
    found = transport.get_extra_info("peername")
    return str(Endpoint(host=found[0], port=found[1])) if isinstance(found, tuple) else ""
