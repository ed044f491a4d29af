"""What must be observed of a life, read from the specifications and from nothing else.

MQTT 5, in its own words as far as they fit:

    3.1.2.4     Clean Start 1: an existing session is discarded.  0: it is resumed if there is one.
    3.1.2.11.2  The session is kept for its expiry interval after the network connection is closed; 0 ends it there,
                0xFFFFFFFF never.
    3.14.2.2.2  DISCONNECT may give another interval; one that is not 0 after 0 is a protocol error, and no DISCONNECT.
    3.1.2.5     The will is published when the connection has ended, unless by DISCONNECT 0x00, and once.
    3.1.3.2.2   It waits for its delay or the end of the session, whichever comes first; a new connection to the session
                before that cancels it.
    3.1.4       A second connection of the client: the first one gets DISCONNECT 0x8E and is closed, its will is treated as
                after any end, and then comes Clean Start.  So the session of an expiry of 0 has ended by then.
    4.1, 4.4    The session: subscriptions, messages on their way in both directions, messages not sent yet.  With a session
                that goes on, PUBLISH comes again with its identifier and DUP, PUBREL instead of it after PUBREC, and identifiers
                of incoming QoS 2 messages are known.

3.1.1: clean session 1 is a session that ends with its connection, 0 one that the server keeps; a will has no delay; there is
no DISCONNECT from the server.

Of identities the specifications say only that a server may refuse an identifier (3.1.1: 3.1.3.1, 5: 3.1.3.1); that a session belongs to
whoever made it is the broker's own word (docs/access.md).

Where a client does two things at once the order is the network's: then every order is an answer, but each of them as a whole.
One thing is the broker's own word: when a gateway is killed, its connections end for their homes when it was last heard, and
that is known when it starts again, or after 20 s, or when the client's next connection comes and takes over.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.lives.table import (
    DISCONNECTING,
    HEARD_BEFORE_S,
    NOTICED_WITHIN_S,
    TAKEOVERS,
    Before,
    Ending,
    Life,
    Stranger,
    Will,
    gap_s,
    kept_s,
    third_gap_s,
)

PROTOCOL_ERROR, KEEP_ALIVE_TIMEOUT, SESSION_TAKEN_OVER = 0x82, 0x8D, 0x8E
PACKET_IDENTIFIER_NOT_FOUND = 0x92
_NORMAL = {
    *(Ending.DISCONNECT, Ending.DISCONNECT_ZERO, Ending.DISCONNECT_SHORTER, Ending.DISCONNECT_LONGER, Ending.DISCONNECT_NEVER),
    *(Ending.DISCONNECTING, Ending.DISCONNECTING_ZERO),
}


NOT_YOURS = {4: 2, 5: 0x85}
"""What the specifications have for a client id that is another's: identifier rejected, client identifier not valid."""


@dataclass(frozen=True, slots=True)
class WillDue:
    """by_second: when the second connection comes.  Otherwise so many seconds after the end of the first one."""

    after_s: float = 0.0
    by_second: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """One way in which it may have gone."""

    story: str
    farewells: tuple[int | None, ...]
    """The reason codes of DISCONNECT that the first connection may get; None: none."""
    first_present: bool
    present: bool
    """The session of the first connection goes on with the second."""
    will: WillDue | None
    """None: it never comes."""
    third_present: bool


def expect(life: Life, gap: float | None = None) -> tuple[Expected, ...]:
    """All that may be observed.  gap: how long after the end the second CONNECT really was; on a busy machine that is not as
    planned."""
    ending = life.ending
    kept = kept_s(life.expiry, ending)
    if gap is None or ending in TAKEOVERS:
        gap = gap_s(life.expiry, ending, life.will, life.when)
    if ending in DISCONNECTING:
        either = (None, SESSION_TAKEN_OVER)
        first = _went(life, "its DISCONNECT came first", either, ending in _NORMAL, kept, gap)
        second = _went(life, "the second connection came first", either, False, life.expiry.value, gap)
        return first, second
    if ending is Ending.KILLED:
        known = _went(life, "the end was known", (None,), False, kept, gap)
        earlier = _went(life, "it counted from before the kill", (None,), False, kept, gap + HEARD_BEFORE_S)
        if gap > NOTICED_WITHIN_S:
            return (known,)
        return known, earlier, _went(life, "nobody knew of the end", (None,), False, kept, 0.0)
    return (_went(life, ending.value, _FAREWELLS.get(ending, (None,)), ending in _NORMAL, kept, gap),)


def stranger_code(life: Life) -> int:
    """What somebody else gets in CONNACK: the client id is not his as long as there is a connection or a session of it.  What is left
    of the life must not know that he was there: nothing else is expected of one with a stranger."""
    if life.stranger is Stranger.THERE or (life.stranger is Stranger.AWAY and kept_s(life.expiry, life.ending)):
        return NOT_YOURS[life.stranger_version]
    return 0


_FAREWELLS: dict[Ending, tuple[int | None, ...]] = {
    Ending.DISCONNECT_REFUSED: (PROTOCOL_ERROR,),
    Ending.PROTOCOL_ERROR: (PROTOCOL_ERROR,),
    Ending.KEEP_ALIVE: (KEEP_ALIVE_TIMEOUT,),
    Ending.TAKEN_OVER: (SESSION_TAKEN_OVER,),
    Ending.REPLAYING: (SESSION_TAKEN_OVER,),
}


def _went(life: Life, story: str, farewells: tuple[int | None, ...], forgets_will: bool, kept: int, gap: float) -> Expected:
    """kept: how long the session outlives its connection; gap: how long after its end the second connection comes."""
    present = not life.second_clean and kept > gap
    due = min(life.will.value, kept)
    will: WillDue | None
    if life.will is Will.NONE or forgets_will:
        will = None
    elif due <= gap:
        will = WillDue(after_s=due)
    else:
        will = None if present else WillDue(by_second=True)
    return Expected(
        story=story,
        farewells=(None,) if life.version == 4 else farewells,
        first_present=life.before is Before.OFFLINE and not life.clean,
        present=present,
        will=will,
        third_present=life.second_expiry.value > third_gap_s(life.second_expiry, life.third),
    )
