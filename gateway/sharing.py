"""One member of each shared group for every message (MQTT 5, 4.8.2), over all gateways, and over the session
actors with members in their memory, which take part as gateways do.  Durable members that are online are groups of their own here, which
get what is not stored; everything else comes to them from the store (docs/groups.md).

The gateway of the publisher chooses, because it is the only one that fans the message out: per group a gateway, each as often
as it has members there (Interest says how many), and that one's next member.  A Forward names the groups that its taker has to
serve, so nobody serves a group that it was not asked to.  A will enters at every gateway at once; there the group is served by
the gateway with the smallest name of those with members, which all of them know.  If all members are sessions in memory, the
gateway with the smallest name of all hands it to one of their session actors.

A member that cannot take a message is passed over: its window and its queue are full, or its client does not read (QoS 0), or
takes no packet of that size.  Who is full is known only within a gateway.  When nobody here has room another gateway gets it; if
there is none, the next member does, at the cost of the oldest message in its queue, as a plain subscription would.

When a connection ends, what it had from a group goes to another member, of this gateway if there is one: QoS 1 messages that it
had not acknowledged, and all that was not sent yet.  A QoS 2 message that was sent goes to nobody else [MQTT-4.8.2-5], nor
does a message that its client has refused [MQTT-4.8.2-6].  The same happens to a message for a group whose last member left
here while it was on its way.

What this does not promise: a message is lost with a gateway that dies, and when no member is left anywhere.  A will may
come twice or not at all while members come or go in that instant.  What was handed on may come behind newer messages; each
member gets the rest in the order of its publisher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.frames import HANDED_ON
from gateway.groups import Group, GroupMessage
from gateway.live import LiveTable
from gateway.sending import Sending
from gateway.state import State
from mqtt.body import message_expiry, with_message_expiry
from mqtt.encode import PublishTemplate

REFUSALS_MAX: Final = 8
"""A message that a plugin keeps from more members than these, one after the other, is lost to its group."""
MEMBERS_ASKED_MAX: Final = 100
"""So many members are asked for room before one has to make some: a message must not cost more, however large the group."""


class Sharing:
    def __init__(self, gateway: str, state: State, table: LiveTable, sending: Sending, is_first: Callable[[], bool]) -> None:
        """is_first: whether no linked gateway has a smaller name."""
        self._gateway = gateway
        self._is_first = is_first
        self._state = state
        self._table = table
        self._sending = sending

    def choose(self, groups: Sequence[Group], publisher: bytes, flags: int, topic: bytes, body: bytes) -> dict[int, list[bytes]]:
        """A message that was published here, to one member of each group.  Returns what others have to serve: link -> groups."""
        asked: dict[int, list[bytes]] = {}
        template = PublishTemplate(topic, body)
        for group in groups:
            link = group.next_gateway()
            if link is None:
                message = GroupMessage(group.filter, publisher, flags, topic, body, self._state.wall_ms)
                if self._to_member(group, message, template, must=not group.elsewhere):
                    continue
                link = group.next_other()
            asked.setdefault(link, []).append(group.filter)
        return asked

    def serve(self, groups: Sequence[bytes], publisher: bytes, flags: int, topic: bytes, body: bytes) -> None:
        """Another gateway has chosen this one for these groups."""
        for filter in groups:
            message = GroupMessage(filter, publisher, flags, topic, body, self._state.wall_ms)
            group = self._table.group(filter)
            if group is not None and group.members:
                self._to_member(group, message, PublishTemplate(topic, body), must=True)
            else:
                # Its last member has just left.  The others were told so before this leaves, so it does not come back.
                self._hand_on(group, message)

    def entered_everywhere(self, groups: Sequence[Group], publisher: bytes, flags: int, topic: bytes, body: bytes) -> None:
        """A message that every gateway has got."""
        for group in groups:
            if group.is_first(self._gateway):
                message = GroupMessage(group.filter, publisher, flags, topic, body, self._state.wall_ms)
                self._to_member(group, message, PublishTemplate(topic, body), must=True)
            elif group.only_in_memory and self._is_first():
                self._sending.forward(group.next_other(), publisher, HANDED_ON, flags, topic, body, False, [group.filter])

    def turn(self) -> None:
        """What ended connections had from their groups goes to others.  At the end of a turn: then all are gone that go."""
        orphans = self._state.orphans
        for message in orphans:
            group = self._table.group(message.group)
            template = PublishTemplate(message.topic, message.body)
            if message.refusals:
                self._to_another(group, message, template)
            elif group is not None and group.members and self._to_member(group, message, template, must=not group.elsewhere):
                self._state.counters.shared_handed_on += 1
            else:
                self._hand_on(group, message)
        orphans.clear()

    def _to_member(self, group: Group, message: GroupMessage, template: PublishTemplate, must: bool) -> bool:
        """To the next member that has room, else to the next one if it must; False: to nobody."""
        published_qos = message.flags >> 1 & 3
        sending = self._sending
        for _ in range(min(len(group.members), MEMBERS_ASKED_MAX)):
            sub = group.next_member()
            if sending.fits(sub, sub.sent_qos[published_qos], template):
                break
        else:
            if not must:
                return False
            sub = group.next_member()
        retain = message.flags & 1 if sub.retain_as_published else 0
        if sending.send(sub, sub.sent_qos[published_qos], retain, template, message.published_at_ms, message):
            self._state.counters.live_delivered += 1
        return True

    def _to_another(self, group: Group | None, message: GroupMessage, template: PublishTemplate) -> None:
        """One that a plugin keeps from its member.  Not to other gateways, which would send it back: each asks for its members only."""
        if message.refusals <= REFUSALS_MAX and group is not None and self._to_member(group, message, template, must=False):
            self._state.counters.shared_handed_on += 1
        else:
            self._state.counters.shared_lost += 1

    def _hand_on(self, group: Group | None, message: GroupMessage) -> None:
        """To a member at another gateway."""
        counters = self._state.counters
        if group is None or not group.elsewhere:
            counters.shared_lost += 1
            return
        body = self._aged(message)
        if body is None:
            counters.live_dropped_expired += 1
            return
        counters.shared_handed_on += 1
        link = group.next_other()
        self._sending.forward(link, message.publisher, HANDED_ON, message.flags, message.topic, body, False, [message.group])

    def _aged(self, message: GroupMessage) -> bytes | None:
        """The body with what is left of its expiry, because a Forward does not say when it was published; None: too old."""
        expiry_s = message_expiry(message.body)
        if expiry_s is None:
            return message.body
        left_ms = message.published_at_ms + expiry_s * 1000 - self._state.wall_ms
        return with_message_expiry(message.body, -(-left_ms // 1000)) if left_ms > 0 else None
