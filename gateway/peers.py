"""The other gateways, and the session actors: what each wants live, and what other gateways are told of the wishes here.

A session actor wants what its sessions in memory have subscribed to.  It has no publishers, so it is told nothing; its link
has a number below zero here (`session_link`).

A link begins with the whole table of each side (PROTOCOLS 9); afterwards changes are told in numbered Interest frames, each
confirmed by InterestSeen, which is what a SUBACK waits for.  A Forward of a connection that is older than the newest known
one of its publisher is dropped, whether the newer one was seen in a forward or connected here.

Always holds: what a peer was told is what LiveTable.told says; numbers confirmed are at most numbers sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.events import ToPeer, ToSession
from gateway.fanout import Fanout
from gateway.frames import HANDED_ON, Forward, Interest, InterestSeen, LiveFrame
from gateway.live import LiveTable
from gateway.state import State
from sessions.newest import NewestConnections


def session_link(session: int) -> int:
    """The number of the link to a session actor, among those of other gateways."""
    return -1 - session


def to_link(link: int, frame: LiveFrame) -> ToPeer | ToSession:
    return ToPeer(link, frame) if link >= 0 else ToSession(-1 - link, frame)


@dataclass(slots=True)
class Peer:
    gateway: str
    sent: int = 0
    seen: int = 0
    """Interest frames sent to it, and the last one it has confirmed."""
    whole: bool = False
    """Its whole table is here."""
    wants: dict[bytes, None] = field(default_factory=dict)
    wants_qos0: dict[bytes, None] = field(default_factory=dict)
    groups: dict[bytes, None] = field(default_factory=dict)


class Peers:
    def __init__(self, state: State, table: LiveTable, fanout: Fanout) -> None:
        self.links: dict[int, Peer] = {}
        self._state = state
        self._table = table
        self._fanout = fanout
        self._newest = NewestConnections(state.options.publishers_max)

    def ready(self) -> bool:
        """Whether this gateway knows what every linked gateway wants: before that it must not accept clients."""
        return all(peer.whole for peer in self.links.values())

    def is_first(self, name: str) -> bool:
        """Whether this gateway, called so, has the smallest name of all."""
        return all(name < peer.gateway for link, peer in self.links.items() if link >= 0)

    def linked(self, link: int, gateway: str) -> None:
        self.links[link] = Peer(gateway)

    def lost(self, link: int) -> None:
        peer = self.links.pop(link, None)
        if peer is not None:
            self._forget(link, peer)

    def received(self, link: int, frame: LiveFrame) -> None:
        peer = self.links.get(link)
        if peer is None:
            return
        if isinstance(frame, Forward):
            self._forwarded(frame)
        elif isinstance(frame, Interest):
            self._interested(link, peer, frame)
        else:
            peer.seen = max(peer.seen, frame.number)

    def _interested(self, link: int, peer: Peer, frame: Interest) -> None:
        if frame.reset:
            self._forget(link, peer)
            peer.whole = True
        rows = (
            (frame.remove_all, peer.wants, True, False), (frame.remove_qos0, peer.wants_qos0, False, False),
            (frame.add_all, peer.wants, True, True), (frame.add_qos0, peer.wants_qos0, False, True),
        )  # fmt: skip
        for filters, held, every, add in rows:
            for filter in filters:
                if add:
                    held[filter] = None
                    self._table.peer_wants(link, filter, every)
                else:
                    held.pop(filter, None)
                    self._table.peer_wants_no_more(link, filter, every)
        for filter, members in frame.groups:
            if members:
                peer.groups[filter] = None
            else:
                peer.groups.pop(filter, None)
            self._table.peer_has_members(link, peer.gateway, filter, members)
        self._state.outbox.effects.append(to_link(link, InterestSeen(frame.number)))

    def _forget(self, link: int, peer: Peer) -> None:
        for filter in peer.wants:
            self._table.peer_wants_no_more(link, filter, True)
        for filter in peer.wants_qos0:
            self._table.peer_wants_no_more(link, filter, False)
        for filter in peer.groups:
            self._table.peer_has_members(link, peer.gateway, filter, 0)
        peer.wants.clear()
        peer.wants_qos0.clear()
        peer.groups.clear()

    def _forwarded(self, frame: Forward) -> None:
        counters = self._state.counters
        if frame.conn != HANDED_ON and not self._newest.takes(frame.publisher, frame.conn):
            counters.forwards_stale += len(frame.topics)
            return
        counters.forwards_received += len(frame.topics)
        self._fanout.forwarded(frame)

    def newest_of(self, publisher: bytes) -> int:
        return self._newest.of(publisher)

    def note_newest(self, publisher: bytes, conn: int) -> None:
        self._newest.note(publisher, conn)

    # ---------------------------------------------------------------- the end of a turn
    def tell(self) -> None:
        """Tell every other gateway what has changed here, a new one everything."""
        effects = self._state.outbox.effects
        changes = self._table.changes()
        for link, peer in self.links.items():
            if link < 0:
                continue
            if not peer.sent:
                peer.sent = 1
                effects.append(ToPeer(link, Interest(1, True, *self._table.told())))
            elif changes is not None:
                peer.sent += 1
                effects.append(ToPeer(link, Interest(peer.sent, False, *changes)))

    def unconfirmed(self) -> dict[int, int]:
        """link -> the last Interest that it has still to confirm."""
        return {link: peer.sent for link, peer in self.links.items() if peer.seen < peer.sent}
