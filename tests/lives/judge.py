"""Compares what was seen of a life with what the oracle says, and tells every difference in words."""

from __future__ import annotations

from collections.abc import Iterator

from tests.broker.wire import Publish
from tests.lives.oracle import PACKET_IDENTIFIER_NOT_FOUND, Expected, WillDue, expect, stranger_code
from tests.lives.player import (
    AFTER,
    BACKLOG,
    FIRST_WILL,
    KEEP_ALIVE_S,
    MISSED,
    OLDER,
    SAID,
    SECOND_WILL,
    UNACKED,
    UNCOMPLETED,
    UNRECEIVED,
    Observed,
    Player,
)  # fmt: skip
from tests.lives.stage import OBSERVERS, Seen, Stage
from tests.lives.table import HEARD_BEFORE_S, NOTICED_WITHIN_S, TAKEOVERS, Ending, Holds, Life, Stranger

WILL_WITHIN_S = 1.0
EARLY_S = 0.05
"""Clocks of two processes and a network lie between an end and a will."""


def faults(player: Player, stage: Stage, retained: dict[bytes, int], outage_s: float = 0.0) -> list[str]:
    """Nothing, if one of the ways in which it may have gone is how it went; otherwise what is wrong with the nearest.

    outage_s: how long a shard may have been away at any time.  A will may be late by that, and what is not stored may be
    missed."""
    if player.seen.stuck:
        return [player.seen.stuck]
    gap = player.seen.second_s - (player.seen.ended_from_s if player.life.ending is Ending.KILLED else player.seen.ended_to_s)
    ways = [_Judge(player, stage, retained, way, outage_s).faults() for way in expect(player.life, gap)]
    return min(ways, key=len)


class _Judge:
    def __init__(self, player: Player, stage: Stage, retained: dict[bytes, int], expected: Expected, outage_s: float) -> None:
        self._life: Life = player.life
        self._seen: Observed = player.seen
        self._key = player.key
        self._stage = stage
        self._retained = retained
        self._expected = expected
        self._outage_s = outage_s

    def faults(self) -> list[str]:
        found = [*self._connections(), *self._stranger(), *self._held(), *self._messages(), *self._incoming(), *self._will()]
        return [f"{each} (as {self._expected.story})" for each in found]

    # -------------------------------------------------------------------- connections

    def _connections(self) -> Iterator[str]:
        life, seen, expected = self._life, self._seen, self._expected
        if seen.first_present is not expected.first_present:
            yield f"session present {seen.first_present} at the first connection, wanted {expected.first_present}"
        if seen.farewell not in expected.farewells:
            yield f"the first connection got DISCONNECT {_hex(seen.farewell)}, wanted {' or '.join(map(_hex, expected.farewells))}"
        if life.ending is Ending.KEEP_ALIVE and not -EARLY_S <= seen.ended_to_s - seen.silent_s - 1.5 * KEEP_ALIVE_S <= 1.5:
            yield f"closed {seen.ended_to_s - seen.silent_s:.2f} s after its last word with a keep alive of {KEEP_ALIVE_S} s"
        if seen.present is not expected.present:
            yield f"session present {seen.present} at the second connection, wanted {expected.present}"
        asked = life.second_expiry.value
        if life.second_version == 5 and seen.told_expiry_s not in (None, asked):
            yield f"CONNACK gives an expiry of {seen.told_expiry_s} s, asked for {asked}"
        if seen.third_present is not expected.third_present:
            yield f"session present {seen.third_present} at the third connection, wanted {expected.third_present}"

    def _stranger(self) -> Iterator[str]:
        wanted, heard = stranger_code(self._life), self._seen.stranger
        if self._life.stranger is Stranger.NOBODY or heard is None:
            return
        if (heard.code, heard.session_present) != (wanted, False):
            present = heard.session_present
            yield f"a stranger got CONNACK {_hex(heard.code)}, session present {present}, wanted {_hex(wanted)} and no session"

    # -------------------------------------------------------------------- messages

    def _held(self) -> Iterator[str]:
        """What was under way comes again under its identifier, what was missed comes, what is finished does not."""
        life, seen = self._life, self._seen
        again = [(UNACKED, 1, Holds.UNACKED), (UNRECEIVED, 2, Holds.UNRECEIVED)]
        wanted = {tag: (qos, True) for tag, qos, holds in again if life.holds in (holds, Holds.ALL)}
        if life.holds in (Holds.MISSED, Holds.ALL) and life.ending not in TAKEOVERS:
            wanted.update({tag: (qos, False) for tag, qos in MISSED})
        if life.holds is Holds.BACKLOG:
            wanted.update({b"backlog %d" % n: (1 + n % 2, b"backlog %d" % n in seen.first_ids) for n in range(BACKLOG)})
        if not self._expected.present:
            wanted = {}
        elif life.holds not in (Holds.NOTHING, Holds.INCOMING):
            wanted[AFTER] = (1, False)
        if self._expected.present and self._expected.first_present:
            wanted[OLDER] = (1, False)
        for tag, (qos, repeated) in wanted.items():
            yield from self._one(tag, qos, repeated, [each for each in seen.arrived if each.payload == tag])
        for each in seen.arrived:
            if each.payload not in wanted:
                yield f"{each.payload.decode()!r} came on the second connection"
        for qos in (1, 2):
            came = [each.payload for each in seen.arrived if each.qos == qos and each.payload != OLDER]
            if came != [tag for tag in wanted if tag in came and wanted[tag][0] == qos]:
                yield f"QoS {qos} came in the order {came}"

    def _one(self, tag: bytes, qos: int, repeated: bool, came: list[Publish]) -> Iterator[str]:
        if len(came) != 1:
            yield f"{tag.decode()!r} came {len(came)} times on the second connection, wanted once"
            return
        (it,) = came
        if it.qos != qos:
            yield f"{tag.decode()!r} came with QoS {it.qos}"
        if repeated and (not it.dup or it.packet_id != self._seen.first_ids[tag]):
            yield f"{tag.decode()!r} came again with DUP {it.dup} under {it.packet_id}, first under {self._seen.first_ids[tag]}"
        if not repeated and it.dup and self._life.holds is not Holds.BACKLOG:
            yield f"{tag.decode()!r} came with DUP, and was never sent before"

    def _messages(self) -> Iterator[str]:
        """PUBREL on the second connection, and nothing at all on the third."""
        seen = self._seen
        released = []
        if self._expected.present and self._life.holds in (Holds.UNCOMPLETED, Holds.ALL):
            released = [seen.first_ids[UNCOMPLETED]]
        own = {each.packet_id for each in seen.arrived if each.qos == 2}
        extra = [packet_id for packet_id in seen.releases if packet_id not in own]
        if extra != released:
            yield f"PUBREL came for {extra}, wanted {released}"
        if seen.third_arrived:
            yield f"{[each.payload for each in seen.third_arrived]} came on the third connection"

    def _incoming(self) -> Iterator[str]:
        life, seen = self._life, self._seen
        if life.holds not in (Holds.INCOMING, Holds.ALL):
            return
        unknown = PACKET_IDENTIFIER_NOT_FOUND if life.second_version == 5 else 0
        wanted = [0, 0] if self._expected.present else [unknown]
        if seen.incoming != wanted:
            yield f"the message that was not released was answered {list(map(_hex, seen.incoming))}, wanted {list(map(_hex, wanted))}"
        came = self._stage.seen(SAID + self._key)
        if life.ending is Ending.KILLED and len(came) == 1 and came[0].observer == OBSERVERS[1]:
            return  # An ephemeral session may miss what was on its way when the publisher's gateway dies: the broker's own word.
        yield from self._once(came, 2, "what the client said")

    # -------------------------------------------------------------------- wills

    def _will(self) -> Iterator[str]:
        life, due = self._life, self._expected.will
        came = self._stage.seen(FIRST_WILL + self._key)
        kept = self._retained.get(FIRST_WILL + self._key)
        if self._stage.seen(SECOND_WILL + self._key):
            yield "the will of the second connection came, which ended with DISCONNECT"
        if due is None:
            if came:
                yield f"the will came {came[0].at_s - self._seen.ended_to_s:.2f} s after the end, and must not come"
        else:
            yield from self._once(came, life.will_qos, "the will")
            earliest, latest = self._window(due)
            latest += self._outage_s
            for each in came:
                if not earliest - EARLY_S <= each.at_s <= latest + WILL_WITHIN_S:
                    end = self._seen.ended_to_s
                    yield f"the will came {each.at_s - end:.2f} s after the end, wanted {earliest - end:.2f} to {latest + 1 - end:.2f} s"
        if kept != (life.will_qos if due is not None and life.will_retain else None):
            yield f"the will is {'not ' if kept is None else ''}retained{'' if kept is None else f' with QoS {kept}'}"

    def _window(self, due: WillDue) -> tuple[float, float]:
        seen = self._seen
        if due.by_second:
            return seen.second_s, seen.accepted_s
        if self._life.ending is Ending.KILLED:
            latest = min(max(NOTICED_WITHIN_S, due.after_s), max(seen.accepted_s - seen.ended_from_s, due.after_s))
            return seen.ended_from_s + max(0.0, due.after_s - HEARD_BEFORE_S), seen.ended_from_s + latest
        return seen.ended_from_s + due.after_s, seen.ended_to_s + due.after_s

    def _once(self, came: list[Seen], qos: int, what: str) -> Iterator[str]:
        """At each observer, with its QoS, and not as a retained message."""
        for observer in OBSERVERS:
            count = sum(1 for each in came if each.observer == observer)
            may_miss = self._outage_s and (qos == 0 or observer == OBSERVERS[0])
            if count != 1 and not (count == 0 and may_miss):
                yield f"{what} came {count} times to the {observer} observer"
        for each in came:
            if each.qos != qos or each.retained:
                yield f"{what} came with QoS {each.qos}{' as retained' if each.retained else ''}, wanted QoS {qos}"


def _hex(code: int | None) -> str:
    return "none" if code is None else f"0x{code:02x}"
