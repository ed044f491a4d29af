"""Acknowledgements of a subscriber.

    QoS 1   PUBLISH sent -> PUBACK: finished
    QoS 2   PUBLISH sent -> PUBREC: received, committed, then PUBREL -> PUBCOMP: finished
                         -> PUBREC with an error: finished [MQTT-4.3.3]

They may come in any order; numbers are finished one by one and committed as far as there is no gap.  An identifier that is
not under way is ignored (a client may repeat itself), except that PUBREC gets its PUBREL, so that the client can finish: in
MQTT 5 with 0x92, which says that its session and ours differ.
One of the wrong kind for what is under way is a fault of the client.

A QoS 2 number that is finished out of order stays in `received` until the gap below it closes: it must never be published
again.  Its row says that it is finished; when that was not committed before a crash, PUBREL comes once more.
"""

from __future__ import annotations

from sessions.committing import Committing
from sessions.frames import PUBACK, PUBCOMP, PUBREC, Acked, Attach
from sessions.outstanding import under_way
from sessions.session import Session
from sessions.state import State
from sessions.window import NO_GATE

_TRACK2 = 0x8000


class Acks:
    def __init__(self, state: State, committing: Committing) -> None:
        self._state = state
        self._committing = committing

    def resume(self, session: Session, frame: Attach) -> None:
        """A new connection: PUBREL again for what was received and not completed [MQTT-4.4.0-1], in the order of the PUBRECs.  Of one that
        another actor has had, only where there was none; for what was received lately its gateway says PUBREC once more."""
        two, received = session.two, session.received
        open_numbers = [number for number in received if not two.is_finished(number)]
        session.window.inflight += len(open_numbers) + under_way(session)
        again = [two.packet_id(number) for number in open_numbers if received[number] <= session.commits_done]
        if frame.moved:
            seen = dict.fromkeys((*frame.unreleased, *frame.had_pubrel))
            again = [packet_id for packet_id in again if packet_id not in seen]
        if again:
            self._state.outputs[session.link].pubrel(session.conn, again)

    def acked(self, session: Session, frame: Acked) -> bool:
        """False: the client broke the protocol, close its connection."""
        if not frame.packet_ids:
            return True
        if frame.kind == PUBACK:
            fine = self._puback(session, frame.packet_ids)
        elif frame.kind == PUBREC:
            fine = self._failed(session, frame.packet_ids) if frame.failed else self._pubrec(session, frame.packet_ids)
        else:
            assert frame.kind == PUBCOMP
            fine = self._pubcomp(session, frame.packet_ids)
        self._state.stir(session)
        if not fine:
            self._state.counters.acks_wrong += 1
        return fine

    def _puback(self, session: Session, packet_ids: list[int]) -> bool:
        one = session.one
        moved, count = one.finish_run(packet_ids), len(packet_ids)
        if not moved:
            count = 0
            for packet_id in packet_ids:
                if packet_id >= _TRACK2:
                    if session.two.is_open(session.two.number_of(packet_id)):
                        return False
                    continue
                number = one.number_of(packet_id)
                if one.is_open(number):
                    count += 1
                    if one.finish(number):
                        moved = True
        self._state.counters.acks_unknown += len(packet_ids) - count
        self._finished(session, count)
        if moved:
            session.progress_dirty = True
            if session.ranges.progressed1():
                self._committing.lazily(session)
            else:
                self._committing.progressed(session)
        return True

    def _pubrec(self, session: Session, packet_ids: list[int]) -> bool:
        two, received = session.two, session.received
        gate = session.next_commit
        now: list[int] = []
        waiting: list[int] = []
        unknown: list[int] = []
        for packet_id in packet_ids:
            if packet_id < _TRACK2:
                if session.one.is_open(session.one.number_of(packet_id)):
                    return False
                unknown.append(packet_id)
                continue
            number = two.number_of(packet_id)
            known = None if two.is_finished(number) else received.get(number)
            if known is not None:
                # A repeat: its PUBREL leaves now, or with the commit that the first one waits for.
                if known <= session.commits_done:
                    now.append(packet_id)
            elif two.is_open(number):
                received[number] = gate
                waiting.append(packet_id)
            else:
                unknown.append(packet_id)
        if now:
            self._state.outputs[session.link].pubrel(session.conn, now)
        if unknown:
            self._state.counters.acks_unknown += len(unknown)
            self._state.outputs[session.link].pubrel_unknown(session.conn, unknown)
        if waiting:
            session.release_when_committed(gate, waiting)
            session.progress_dirty = True
            self._committing.soon(session)
        return True

    def _failed(self, session: Session, packet_ids: list[int]) -> bool:
        """PUBREC with an error: the client does not take the message, and that is the end of it."""
        two, received = session.two, session.received
        for packet_id in packet_ids:
            if packet_id < _TRACK2:
                if session.one.is_open(session.one.number_of(packet_id)):
                    return False
                continue
            number = two.number_of(packet_id)
            if number in received or not two.is_open(number):
                self._state.counters.acks_unknown += 1
                continue
            received[number] = NO_GATE
            self._finish_two(session, number)
        return True

    def _pubcomp(self, session: Session, packet_ids: list[int]) -> bool:
        two, received = session.two, session.received
        for packet_id in packet_ids:
            if packet_id < _TRACK2:
                if session.one.is_open(session.one.number_of(packet_id)):
                    return False
                self._state.counters.acks_unknown += 1
                continue
            number = two.number_of(packet_id)
            known = received.get(number)
            if known is None:
                if two.is_open(number):
                    return False
                self._state.counters.acks_unknown += 1
            elif two.is_finished(number):
                self._state.counters.acks_unknown += 1
            elif known > session.commits_done:
                return False
            else:
                self._finish_two(session, number)
        return True

    def _finish_two(self, session: Session, number: int) -> None:
        self._finished(session, 1)
        session.progress_dirty = True
        if session.finish_two(number) and session.ranges.progressed2():
            self._committing.lazily(session)
        else:
            self._committing.progressed(session)

    def _finished(self, session: Session, count: int) -> None:
        session.window.inflight -= count
        self._state.counters.acknowledged += count
