"""A link between two parts of one process: what one end sends the other end's owner hears in the next turn of the loop.

No socket, no proof and no framing: whoever shares a process shares its memory, and the secret with it.  A frame is handed over as it is,
without having been bytes between: what stands in it belongs to nobody from then on, and is changed by nobody (tests/sim looks whether it
is).  Nothing is delivered within `send`: an owner that answers what it hears is then never called while it calls.

    made -> up (connect) -> closing (close, of either end) -> lost, in the next turn

Always holds:
1. link_up before the first frame, link_down after the last, once each; frames in the order in which they were sent;
2. at most one delivery is due for each end; what waits there is bounded by WRITE_BYTES_MAX and FRAMES_MAX, above which the link is closed;
3. what was sent before the other end closed is heard, unless this end holds it or closes it too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from actors import link as framed
from actors.link import CUT_OFF, WRITE_BYTES_MAX, Carried, F, Link, LinkOwner
from actors.link_version import Spoken

FRAMES_MAX = 20_000
"""Of frames that wait as they are, nobody knows the bytes.  Mostly there are few: who takes them does so in the next turn of the loop."""

log = structlog.get_logger(__name__)


class DirectLink(Link):
    """One of two ends, made by the owner of each; the one that dials is told to `connect` with that of who listens."""

    def __init__(self, owner: LinkOwner, speaks: Spoken, role: str, name: str, closed: Callable[[Link], None]) -> None:
        """closed: called once, when it is lost.  Both ends are of one program, and speak the same versions."""
        super().__init__(owner, role, name)
        self.version = speaks.newest
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._peer: DirectLink | None = None
        self._inbox: deque[Carried] = deque()
        self._waiting_bytes = 0
        self._due = False
        self._held = self._closing = self._shut = False
        """shut: closed by this end."""
        self._lost = True

    def connect(self, peer: DirectLink) -> None:
        """Both ends are up when this returns, or neither ever: `cause` says why."""
        for end, other in ((self, peer), (peer, self)):
            end._peer, end._lost = other, False
            end.peer_role, end.peer_name = other.role, other.name
        admits = framed.admits
        if admits is not None and not (admits(peer) and admits(self)):
            self.cause = CUT_OFF
            for end in (self, peer):
                end._closing = True
                self._loop.call_soon(end._lose)
            return
        self.up = peer.up = True
        peer._owner.link_up(peer)
        self._owner.link_up(self)

    # ------------------------------------------------------------------ for the owner

    def send(self, data: bytes) -> None:
        peer = self._peer
        if peer is None or self._closing or peer._closing:
            return
        peer._waiting_bytes += len(data)
        self._put(peer, data)
        if peer._waiting_bytes > WRITE_BYTES_MAX:
            self.close(f"{peer._waiting_bytes} bytes wait for a peer that does not read, {WRITE_BYTES_MAX} are allowed")

    def hand_on(self, frame: F, encode: Callable[[F], bytes]) -> None:
        peer = self._peer
        if peer is None or self._closing or peer._closing:
            return
        self._put(peer, frame)
        if len(peer._inbox) > FRAMES_MAX:
            self.close(f"{len(peer._inbox)} frames wait for a peer that does not read, {FRAMES_MAX} are allowed")

    def _put(self, peer: DirectLink, data: Carried) -> None:
        peer._inbox.append(data)
        if not peer._due:
            peer._due = True
            self._loop.call_soon(peer._deliver)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._peer is None else self._peer._waiting_bytes

    def close(self, why: str) -> None:
        peer = self._peer
        if peer is None or self._closing:
            return
        log.info("link.closed", peer=self.peer_name, role=self.peer_role, cause=why)
        self._closing = self._shut = True
        self._loop.call_soon(self._lose)
        if not peer._closing:
            peer._closing = True
            # Behind what is due to be delivered there.
            self._loop.call_soon(peer._lose)

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        if self._inbox and not self._due:
            self._due = True
            self._loop.call_soon(self._deliver)

    @property
    def lost(self) -> bool:
        return self._lost

    # ------------------------------------------------------------------ turns of the loop

    def _deliver(self) -> None:
        """What waited when this turn began; an answer to it that comes at once waits for the next."""
        self._due = False
        owner, inbox = self._owner, self._inbox
        for _ in range(len(inbox)):
            if self._held or self._shut:
                return
            data = inbox.popleft()
            if isinstance(data, bytes):
                self._waiting_bytes -= len(data)
            try:
                owner.link_frame(self, data)
            except Exception as error:
                # As of a socket: the loop says what it was, and the link is no more.
                self.close(f"a frame could not be taken: {error!r}")
                raise

    def _lose(self) -> None:
        self._lost = True
        self._peer = None
        self._inbox.clear()
        self._waiting_bytes = 0
        if self.up:
            self.up = False
            self._owner.link_down(self)
        self._closed(self)
