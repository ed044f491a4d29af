"""Wills: one comes when its connection has ended, and not while it lives.

The home may know of an end before the client does: a gateway that is not heard for 20 s is lost, a closed socket takes its
time to be noticed, and a CONNECT of an attempt that was given up long ago may arrive last and take the place of the newer
connection.  Where none of that can be, a will that is stored while both ends have the connection open came for nothing.
"""

from __future__ import annotations

from tests.sim.client import Attempt, Client
from tests.sim.gateway_part import ClientSocket
from tests.sim.ledger import Message
from tests.sim.rules import Violation
from tests.sim.world import SECOND, World

LOST_AFTER_US = 30 * SECOND
"""A connection whose gateway stood still may be lost for its home for so long."""
LATE_CONNECT_US = 60 * SECOND


class Wills:
    def __init__(self, world: World, clients: list[Client]) -> None:
        self._world = world
        self._clients = {client.key: client for client in clients}

    def written(self, message: Message) -> None:
        """A shard has stored this will."""
        client = self._clients[message.publisher]
        attempt = client.attempts[message.will - 1]
        if self._lives(client, attempt) and not self._late_connect(client, attempt):
            raise Violation(f"will of the living: {message} is stored, and its connection is there")

    def _lives(self, client: Client, attempt: Attempt) -> bool:
        if client.attempt is not attempt or not attempt.online or attempt.wire is None or not attempt.wire.whole:
            return False
        gateway = attempt.wire.accepted.process
        if not gateway.alive or gateway.stopped or self._world.now_us - gateway.still_us <= LOST_AFTER_US:
            return False
        socket = attempt.wire.accepted.owner
        return not (isinstance(socket, ClientSocket) and socket.closing)

    def _late_connect(self, client: Client, attempt: Attempt) -> bool:
        since_us = self._world.now_us - LATE_CONNECT_US
        return any(not older.online and older.heard_us >= since_us for older in client.attempts[: attempt.serial - 1])
