"""Deliveries that a client never acknowledges: counted, and after so many times put out of its way (docs/session-tools.md).

A client that ends with a message, and gets it again at each connection, gets nothing else.  So of each track the oldest delivery counts
the connections that ended with it sent and not acknowledged; the others behind it were only on their way too, and count from anew when it
is their turn.  When it was sent again more often than the limit allows, its message enters the log once more, for the dead-letter topic, in
the record that closes its number: it is neither lost nor done twice.  At QoS 2 the exchange goes on with PUBREL instead.

What counts is a connection that its client ended, or left for another one; not what we, or a gateway that died, have ended.

Holds: at most one delivery of each track is counted, and nothing at all while the limit is 0.
"""

from __future__ import annotations

from dataclasses import replace

from mqtt.body import make_body, properties_of, strip_properties
from sessions.committing import Committing
from sessions.events import TellDeadLetter
from sessions.losses import close_numbers
from sessions.origins import is_bridge
from sessions.ranges import Range
from sessions.seqno import Track
from sessions.session import Session
from sessions.state import State
from shards.entries import Letter

TOPIC, CLIENT, COUNT = "dead-letter-topic", "dead-letter-client", "dead-letter-count"
"""The user properties of a dead letter: the topic it was published to, the client that did not take it, how often it was sent to it."""


class Redelivery:
    def __init__(self, state: State, committing: Committing) -> None:
        self._state = state
        self._committing = committing

    def ended(self, session: Session) -> None:
        """Its client has ended the connection; before anything of it is forgotten."""
        if not self._state.options.redelivery_limit or is_bridge(session.client):
            # What a bridge has sent nowhere yet waits for its target, and it has dead letters of its own.
            return
        for track in (session.one, session.two):
            number = _oldest(session, track)
            if number <= track.out:
                known, count = session.again.get(track.qos, (0, 0))
                session.again = {**session.again, track.qos: (number, count + 1 if known == number else 1)}
                session.progress_dirty = True

    def sent(self, session: Session, qos: int, number: int, topic: bytes) -> int:
        """How often this delivery was sent in vain, if that is once too often; else 0.  A dead letter is not made of one."""
        options = self._state.options
        known, count = session.again.get(qos, (0, 0))
        over = known == number and count > options.redelivery_limit > 0
        return count if over and topic != options.dead_letter_topic else 0

    def put_away(self, session: Session, known: Range, qos: int, number: int, message: tuple[bytes, bytes, int, int], count: int) -> None:
        """message: as a Deliver frame carries it."""
        topic, body, _, _ = message
        if qos == 1:
            close_numbers(session, known, range(number, number + 1), range(known.first2, known.first2))
        else:
            self._release(session, number)
        session.again = {other: counted for other, counted in session.again.items() if other != qos}
        dead_letter_topic = self._state.options.dead_letter_topic
        session.letters += (Letter(dead_letter_topic, qos, dead_letter(body, topic, session.client, count)),)
        self._committing.soon(session)
        session.tell_when_committed(lambda: self._committed(session.client, topic, count))

    def _release(self, session: Session, number: int) -> None:
        """As if PUBREC had come: whether the client has sent one that never arrived, and waits for PUBREL, only that one knows."""
        session.received[number] = gate = session.next_commit
        session.release_when_committed(gate, [session.two.packet_id(number)])
        session.window.inflight += 1
        session.progress_dirty = True

    def _committed(self, client: bytes, topic: bytes, count: int) -> None:
        self._state.counters.dead_letters += 1
        self._state.effects.append(TellDeadLetter(client, topic, count))


def dead_letter(body: bytes, topic: bytes, client: bytes, count: int) -> bytes:
    """The message as it is published once more: it does not expire any more, and says where it comes from."""
    properties = properties_of(body)
    said = ((TOPIC, topic.decode()), (CLIENT, client.decode()), (COUNT, str(count)))
    kept = replace(properties, message_expiry_interval=None, user_properties=(*properties.user_properties, *said))
    return make_body(kept, strip_properties(body))


def _oldest(session: Session, track: Track) -> int:
    """The first number that was not finished, and of QoS 2 not received; one that is not assigned when there is none."""
    number = track.committed + 1
    while track.is_finished(number) or (track.qos == 2 and number in session.received):
        number += 1
    return number
