"""Wills: one comes when its connection has ended, and not while it lives.

The home may know of an end before the client does: a gateway that is not heard for 20 s is lost, a closed socket takes its
time to be noticed, and a CONNECT of an attempt that was given up long ago may arrive last and take the place of the newer
connection.  Where none of that can be, a will that is stored while both ends have the connection open came for nothing.

    once        a will is stored at one place
    cancelled   a delayed one does not come after its session was resumed
    missing     at the end every other one has come, if somebody wanted it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqtt.topics import matches
from tests.sim.client import Attempt, Client
from tests.sim.disk import Disk
from tests.sim.gateway_part import ClientSocket
from tests.sim.ledger import Ledger, Message, Subscription
from tests.sim.rules import Violation
from tests.sim.world import SECOND, World

LOST_AFTER_US = 30 * SECOND
"""A connection whose gateway stood still may be lost for its home for so long."""
LATE_CONNECT_US = 60 * SECOND


class Wills:
    def __init__(self, world: World, clients: list[Client], ledger: Ledger, disks: list[Disk]) -> None:
        self._world = world
        self._disks = disks
        self._ledger = ledger
        self._clients = {client.key: client for client in clients}
        self.may_be_replaced: Callable[[bytes], bool] = _by_nobody
        """Whether somebody else may have taken the place of a client at its home, which it hears later."""

    def written(self, message: Message) -> None:
        """A shard has stored this will."""
        client = self._clients[message.publisher]
        attempt = client.attempts[message.will - 1]
        if len(message.copies) > 1:
            raise Violation(f"will once: {message} is stored at {list(message.copies)}")
        if client.temper.will_delay_s and attempt.online:
            for later in client.attempts[attempt.serial :]:
                if later.present_us >= 0:
                    raise Violation(f"will cancelled: {message} is stored, and its session was resumed at {later.present_us}")
        if self._lives(client, attempt) and not self._late_connect(client, attempt) and not self._refusing():
            raise Violation(f"will of the living: {message} is stored, and its connection is there")

    def missing(self) -> Iterator[Message]:
        """Wills that must have come by now: of connections that ended without a word, for whoever has subscribed since before.
        A delayed one may have been cancelled; what a gateway says of its connections when it is shut down is its own."""
        for client in self._clients.values():
            if client.temper.will_delay_s:
                continue
            for attempt in client.attempts:
                will = attempt.will
                if will is None or not attempt.online or attempt.polite or attempt is client.attempt or _shut_down(attempt):
                    continue
                if attempt.delayed or not self._ledger.promised(will):
                    continue
                if will.written_us < 0 and any(self._wants(sub, will, attempt) for sub in self._subscriptions()):
                    yield will

    def _wants(self, sub: Subscription, will: Message, attempt: Attempt) -> bool:
        lasts = sub.open and sub.durable and sub.qos > 0 and sub.uncertain_us < 0 and sub.since_us < attempt.online_us
        return lasts and matches(sub.topics, will.topic)

    def _subscriptions(self) -> Iterator[Subscription]:
        for subs in self._ledger.subscriptions.values():
            yield from subs

    def _lives(self, client: Client, attempt: Attempt) -> bool:
        if client.attempt is not attempt or not attempt.online or attempt.wire is None or not attempt.wire.whole:
            return False
        if self.may_be_replaced(client.key):
            return False
        gateway = attempt.wire.accepted.process
        if not gateway.alive or gateway.stopped or self._world.now_us - gateway.still_us <= LOST_AFTER_US:
            return False
        socket = attempt.wire.accepted.owner
        return not (isinstance(socket, ClientSocket) and socket.closing)

    def _refusing(self) -> bool:
        """A home without room ends connections of 3.1.1 at once, whose messages it cannot refuse in words."""
        return any(disk.low_until_us >= self._world.now_us for disk in self._disks)

    def _late_connect(self, client: Client, attempt: Attempt) -> bool:
        since_us = self._world.now_us - LATE_CONNECT_US
        return any(not older.online and older.heard_us >= since_us for older in client.attempts[: attempt.serial - 1])


def _shut_down(attempt: Attempt) -> bool:
    return attempt.wire is not None and attempt.wire.accepted.process.shut_down


def _by_nobody(client: bytes) -> bool:
    return False
