"""Links: framed sockets between the processes of one broker, with a proof of the cluster's secret at both ends.

A frame is `u32 length, big-endian | bytes`; what the bytes mean is the owner's.  Before the first frame both ends prove that
they know the secret, by an HMAC over the other's nonce, and the client says its role and its name with incarnation.

Always holds:
1. an owner hears link_up before the first frame and link_down after the last, once each;
2. nothing is delivered from a peer that has not proved the secret;
3. a peer that does not read is cut off when WRITE_BYTES_MAX wait for it; numbered frames are sent again after it reconnects.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from itertools import count
from struct import Struct
from typing import Protocol, cast

import msgpack
import structlog

FRAME_BYTES_MAX = 64 << 20
WRITE_BYTES_MAX = 128 << 20
HANDSHAKE_SECONDS = 5.0
RECONNECT_SECONDS = (0.02, 0.5)
_LENGTH = Struct(">I")
_link_numbers = count(1)

log = structlog.get_logger(__name__)


class LinkOwner(Protocol):
    """Whoever owns links.  All calls come on the loop."""

    def link_up(self, link: Link) -> None: ...

    def link_frame(self, link: Link, data: bytes) -> None: ...

    def link_down(self, link: Link) -> None: ...


class Link(asyncio.Protocol):
    """One socket, from connection to loss.  `number` is never used twice in a process."""

    def __init__(self, owner: LinkOwner, secret: bytes, role: str, name: str, dials: bool, closed: Callable[[Link], None]) -> None:
        self.number = next(_link_numbers)
        self.peer_role = ""
        self.peer_name = ""
        self.up = False
        self._owner = owner
        self._secret = secret
        self._role = role
        self._name = name
        self._dials = dials
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._nonce = secrets.token_bytes(16)
        self._deadline: asyncio.TimerHandle | None = None
        self._chunks: list[bytes] = []
        self._held = 0
        self._need = 4

    # ------------------------------------------------------------------ for the owner

    def send(self, data: bytes) -> None:
        """Write one frame; dropped silently when the link is gone (link_down says so)."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(_LENGTH.pack(len(data)) + data)
        if transport.get_write_buffer_size() > WRITE_BYTES_MAX:
            self.close(f"{transport.get_write_buffer_size()} bytes wait for a peer that does not read, {WRITE_BYTES_MAX} are allowed")

    def close(self, why: str) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            log.info("link.closed", peer=self.peer_name, role=self.peer_role, cause=why)
            transport.abort()

    # ------------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are Transports in everything but the class.
        self._transport = transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self.close, "no proof of the secret in time")
        self._send_row(self._nonce)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        if self.up:
            self.up = False
            self._owner.link_down(self)
        self._closed(self)

    def data_received(self, data: bytes) -> None:
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
            if length > FRAME_BYTES_MAX:
                self.close(f"frame of {length} bytes found, at most {FRAME_BYTES_MAX} are allowed")
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

    # ------------------------------------------------------------------ handshake

    def _send_row(self, *fields: object) -> None:
        assert self._transport is not None
        data = bytes(msgpack.packb(fields))
        self._transport.write(_LENGTH.pack(len(data)) + data)

    def _proof(self, side: bytes, nonce: bytes, role: str, name: str) -> bytes:
        return hmac.new(self._secret, b"\0".join((side, nonce, role.encode(), name.encode())), hashlib.sha256).digest()

    def _shake(self, frame: bytes) -> bool:
        """Rows: [nonce] from both at once, then [role, name, proof over the other's nonce] from both."""
        role, name, good = "", "", False
        try:
            row = msgpack.unpackb(frame, raw=False)
            if len(row) == 1:
                side = b"client" if self._dials else b"server"
                self._send_row(self._role, self._name, self._proof(side, bytes(row[0]), self._role, self._name))
                return True
            role, name, proof = row
            side = b"server" if self._dials else b"client"
            good = hmac.compare_digest(self._proof(side, self._nonce, role, name), proof)
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            log.warning("link.bad_proof", cause=str(error))
        if not good:
            self.close("the peer did not prove the cluster's secret")
            return False
        if self._deadline is not None:
            self._deadline.cancel()
        self.peer_role, self.peer_name, self.up = role, name, True
        self._owner.link_up(self)
        return True


class LinkServer:
    """Accepts links at a unix socket path of this node (mode 0600; a stale socket file is replaced)."""

    def __init__(self, path: str, owner: LinkOwner, secret: bytes, role: str, name: str) -> None:
        self._path = path
        self._owner = owner
        self._secret = secret
        self._role = role
        self._name = name
        self._server: asyncio.Server | None = None
        self._links: dict[int, Link] = {}

    async def start(self) -> None:
        if os.path.exists(self._path):
            os.unlink(self._path)
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, self._path)
        os.chmod(self._path, 0o600)

    def _accept(self) -> Link:
        link = Link(self._owner, self._secret, self._role, self._name, False, self._forget)
        self._links[link.number] = link
        return link

    def _forget(self, link: Link) -> None:
        self._links.pop(link.number, None)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links.values()):
            link.close("this process stops")


class LinkClient:
    """Keeps one link to a path: dials until it answers, and again whenever it is lost."""

    def __init__(self, path: str, owner: LinkOwner, secret: bytes, role: str, name: str) -> None:
        self.link: Link | None = None
        self._path = path
        self._owner = owner
        self._secret = secret
        self._role = role
        self._name = name
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        wait, longest = RECONNECT_SECONDS
        while True:
            self._lost.clear()
            # Known before it is connected: its owner may hear link_up, and send, before connecting returns here.
            self.link = link = Link(self._owner, self._secret, self._role, self._name, True, lambda _: self._lost.set())
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda link=link: link, self._path)  # type: ignore[misc]
            except OSError:
                self.link = None
                await asyncio.sleep(wait)
                wait = min(wait * 2, longest)
                continue
            await self._lost.wait()
            if link.peer_name:
                wait = RECONNECT_SECONDS[0]
            self.link = None
            await asyncio.sleep(wait)
            wait = min(wait * 2, longest)

    def send(self, data: bytes) -> None:
        if self.link is not None and self.link.up:
            self.link.send(data)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self.link is not None:
            self.link.close("this process stops")
