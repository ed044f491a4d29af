"""Wills: one comes when its connection has ended, and not while it lives.

The home may know of an end before the client does: a gateway that is not heard for 20 s is lost, and a closed socket takes
its time to be noticed.  So a will that is stored is looked at again after a while: if the client is still happily connected
by the very connection, and nothing on its way has stood still, the will came for nothing.
"""

from __future__ import annotations

from tests.sim.client import Attempt, Client
from tests.sim.ledger import Message
from tests.sim.rules import Violation
from tests.sim.world import SECOND, World

LOOK_AFTER_US = 5 * SECOND
LOST_AFTER_US = 30 * SECOND
"""A connection whose gateway stood still may be lost for its home for so long."""


class Wills:
    def __init__(self, world: World, clients: list[Client]) -> None:
        self._world = world
        self._clients = {client.key: client for client in clients}

    def written(self, message: Message) -> None:
        """A shard has stored this will."""
        client = self._clients[message.publisher]
        attempt = client.attempts[message.will - 1]
        if self._lives(client, attempt):
            self._world.later(LOOK_AFTER_US, self._look, client, attempt, message)

    def _look(self, client: Client, attempt: Attempt, message: Message) -> None:
        if self._lives(client, attempt) and message.copies:
            raise Violation(f"will of the living: {message} was stored at {message.written_us}, and its connection is there")

    def _lives(self, client: Client, attempt: Attempt) -> bool:
        if client.attempt is not attempt or not attempt.online or attempt.wire is None or not attempt.wire.whole:
            return False
        gateway = attempt.wire.accepted.process
        return gateway.alive and not gateway.stopped and self._world.now_us - gateway.still_us > LOST_AFTER_US
