"""What a connection that another session actor has had holds of QoS 2: sent on it, and not ended by its client.

Its gateway names the identifiers (sessions.frames.Attach), and the rows say which messages they stand for, since these were committed
before they left (PROTOCOLS 12).  What of a track has reached a connection is all of it up to some number, but for what has ended.  So
`out` is where it was, and nothing up to there is sent again [MQTT-4.4.0-1].

Not so, and the connection is refused: the last actor had closed a number without being able to commit that (a loss, a dead letter, a
purge), so the rows have one open that was passed; or a number was closed that this client has yet to answer.
"""

from __future__ import annotations

from sessions.frames import Attach
from sessions.seqno import SPAN_MAX
from sessions.session import Session
from sessions.window import NO_GATE


def goes_on(session: Session, frame: Attach) -> bool:
    """Whether this connection can go on with the session; then `out` of its QoS 2 track is where the last actor has brought it."""
    two, received = session.two, session.received
    if not frame.moved:
        return True
    if two.open <= SPAN_MAX // 2:
        # With more open than that an identifier that was refused a while ago could stand for a newer number.
        for number in map(two.number_of, frame.refused):
            if number < two.next and not two.is_finished(number) and number not in received:
                received[number] = NO_GATE
                session.finish_two(number)
                session.progress_dirty = True
        session.ranges.progressed2()
    seen = dict.fromkeys(map(two.number_of, frame.unreleased))
    if any(number >= two.next or two.is_finished(number) for number in seen):
        return False
    released = [number for number in map(two.number_of, frame.had_pubrel) if number in received]
    top = max((*seen, *released), default=two.committed)
    for number in range(two.committed + 1, top + 1):
        if number not in seen and number not in received and not two.is_finished(number):
            return False
    two.reached(top)
    return True


def under_way(session: Session) -> int:
    """How many messages of QoS 2 the client has got and not received: of a new connection none."""
    two = session.two
    numbers = range(two.committed + 1, two.out + 1)
    return sum(number not in session.received and not two.is_finished(number) for number in numbers)
