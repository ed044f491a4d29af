"""QoS 2 deliveries of one durable connection, as its client has seen them: what its next session actor cannot know from rows.

Only of several sites, where a connection outlives its session actor (gateway.moving).

    PUBLISH sent: GIVEN -> PUBREC: RECEIVED -> PUBREL sent: RELEASED -> PUBCOMP: ended, COMPLETED
                        -> PUBREC with an error: ended, REFUSED

What has ended is kept for a while, since the session actor commits that late: of what it has not committed the next one would send PUBREL
again, or the PUBLISH.  Beyond ENDED_MAX the oldest is forgotten, and then that happens; a client answers a PUBREL at any time.

Holds: an identifier is in `open` or in `ended`, or in neither; an ended one has not been sent again since.
"""

from __future__ import annotations

from typing import Final

from mqtt.packets import AckKind

GIVEN, RECEIVED, RELEASED, COMPLETED, REFUSED = range(5)
ENDED_MAX: Final = 256
FIRST_ID: Final = 0x8000
"""The identifiers of QoS 2 (sessions.seqno)."""


class Handshakes:
    __slots__ = ("ended", "ended_since", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.ended_since: dict[int, int] = {}
        """What has ended since nobody was there to be told of it; until somebody is, it is not in `ended`."""

    def given(self, packet_ids: list[int]) -> int:
        """PUBLISH packets leave, those of QoS 0 and 1 among them; how many are of QoS 2."""
        if max(packet_ids, default=0) < FIRST_ID:
            return 0
        twos = [packet_id for packet_id in packet_ids if packet_id >= FIRST_ID]
        for packet_id in twos:
            self.ended.pop(packet_id, None)
            self.open[packet_id] = GIVEN
        return len(twos)

    def answered(self, kind: AckKind, packet_ids: list[int], alone: bool) -> None:
        """PUBREC without an error, or PUBCOMP.  alone: no session actor hears of it now."""
        if kind is AckKind.PUBREC:
            for packet_id in packet_ids:
                if self.open.get(packet_id) == GIVEN:
                    self.open[packet_id] = RECEIVED
        elif kind is AckKind.PUBCOMP:
            for packet_id in packet_ids:
                if self.open.get(packet_id) == RELEASED:
                    self._end(packet_id, COMPLETED, alone)

    def refused(self, packet_id: int, alone: bool) -> None:
        """PUBREC with an error: the end of a delivery that was not received before."""
        if self.open.get(packet_id) == GIVEN:
            self._end(packet_id, REFUSED, alone)

    def released(self, packet_ids: list[int]) -> None:
        """PUBREL leaves, also for what was received on an earlier connection."""
        for packet_id in packet_ids:
            self.ended.pop(packet_id, None)
            self.open[packet_id] = RELEASED

    def _end(self, packet_id: int, how: int, alone: bool) -> None:
        del self.open[packet_id]
        if alone:
            self.ended_since[packet_id] = how
            return
        self.ended[packet_id] = how
        if len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]

    # ---------------------------------------------------------------- for the next session actor
    def seen(self) -> tuple[list[int], list[int], list[int]]:
        """What sessions.frames.Attach says of them: unreleased, in the order in which they were sent, had_pubrel, and refused, of which
        the last actor was told."""
        ended, since = self.ended.items(), self.ended_since.items()
        unreleased = [packet_id for packet_id, how in (*self.open.items(), *since) if how in (GIVEN, RECEIVED, REFUSED)]
        had_pubrel = [packet_id for packet_id, how in (*self.open.items(), *since, *ended) if how in (RELEASED, COMPLETED)]
        return unreleased, had_pubrel, [packet_id for packet_id, how in ended if how == REFUSED]

    def untold(self) -> list[tuple[AckKind, list[int], bool]]:
        """What the new session actor is to hear once it has the connection: (kind, identifiers, with an error).  From now on it hears the
        rest by itself."""
        received = [packet_id for packet_id, how in self.open.items() if how == RECEIVED]
        since, self.ended_since = self.ended_since, {}
        completed = [packet_id for packet_id, how in (*self.ended.items(), *since.items()) if how == COMPLETED]
        refused = [packet_id for packet_id, how in since.items() if how == REFUSED]
        for packet_id, how in since.items():
            self.open[packet_id] = how
            self._end(packet_id, how, False)
        told = ((AckKind.PUBREC, received, False), (AckKind.PUBREC, refused, True), (AckKind.PUBCOMP, completed, False))
        return [each for each in told if each[1]]

    def check(self) -> None:
        assert not self.open.keys() & (self.ended.keys() | self.ended_since.keys()) and len(self.ended) <= ENDED_MAX
