"""What all parts of a gateway share: its connections, the clock of the turn, the outbox, bounds and counters.

Each part changes only what its own docstring says; connections are put into these tables by gateway.connecting and taken
out by gateway.closing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from access.denials import Denials
from access.rights import Right
from access.rules import OPEN, Access
from gateway.asker import Asker
from gateway.connection import Connection, Phase
from gateway.groups import GroupMessage
from gateway.live import LiveSub
from gateway.options import Counters, Options
from gateway.outbox import Outbox
from gateway.wheel import Wheel
from shards.slots import SlotTable

if TYPE_CHECKING:
    from gateway.second import Second

KEEP_ALIVE_LOOK_MS = 30_000
"""How often a keep alive is looked at, however long it is: a connection that is over is remembered so long because of it."""


class Deadline:
    """Something a connection may be late with."""

    CONNECT: Final = "connect"
    CONNACK: Final = "connack"
    HOME: Final = "home"
    """Not late: its home is to be asked again."""
    KEEP_ALIVE: Final = "keep alive"
    SECOND: Final = "second"
    """Its second session (gateway.second)."""
    RATE: Final = "rate"
    """Not late: its debt is paid."""
    STOP: Final = "stop"


Token = tuple[str, int]
"""What is due, and for which socket; a number and not the connection, so that none is held when it is gone."""


@dataclass(slots=True)
class State:
    slots: SlotTable
    n_sessions: int
    options: Options
    rng: Random
    roams: bool = False
    """There are several sites: session actors are lost for longer, and clients stay meanwhile (gateway.moving)."""
    access: Access = OPEN
    """The rules in force."""
    counters: Counters = field(default_factory=Counters)
    outbox: Outbox = field(init=False)
    wheel: Wheel[Token] = field(default_factory=Wheel)
    now_ms: int = 0
    wall_ms: int = 0
    """Both as of the last turn; the shell turns at least once a second while there are connections."""
    stopping: bool = False
    by_socket: dict[int, Connection] = field(default_factory=dict)
    by_conn: dict[int, Connection] = field(default_factory=dict)
    by_client: dict[bytes, Connection] = field(default_factory=dict)
    """The newest connection of each client that is here."""
    seconds: dict[int, Second] = field(default_factory=dict)
    """Second sessions of connections, by the connection numbers that these have."""
    touched: list[Connection] = field(default_factory=list)
    """Who was heard in this turn."""
    orphans: list[GroupMessage] = field(default_factory=list)
    """What connections that ended in this turn had from their shared groups."""
    outdated: deque[Connection] = field(default_factory=deque)
    """Connections that have their profiles of former rules still."""
    unlooked: deque[LiveSub] = field(default_factory=deque)
    """Subscriptions that ask for each message until somebody has looked at what the rules say of their filters."""
    askers: dict[int, Asker] = field(default_factory=dict)
    """Connections for which a plugin has the word beside the rules (gateway.asking), by a number that grows."""
    denials: Denials = field(default_factory=Denials)
    shards_linked: dict[int, None] = field(default_factory=dict)
    sessions_linked: dict[int, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.options.frame_bytes_max)

    def touch(self, connection: Connection) -> None:
        """The client was heard; the turn's end knows when that was."""
        if not connection.touched:
            connection.touched = True
            self.touched.append(connection)

    def resume(self, connection: Connection, reason: int) -> None:
        """Read the connection again unless there is another reason not to; its keep alive starts anew."""
        if self.outbox.resume(connection, reason):
            self.touch(connection)

    def suppressed(self, connection: Connection, topic: bytes) -> None:
        """A message was kept from its taker, because the rules do not let it be read."""
        self.counters.deliveries_suppressed += 1
        self.denials.note(connection.client, Right.SUBSCRIBE, topic)

    def check(self) -> None:
        for socket, connection in self.by_socket.items():
            assert connection.socket == socket and connection.phase is not Phase.CLOSED
            assert (connection.conn != 0) == (connection.phase in (Phase.ATTACHING, Phase.ONLINE))
            if connection.conn:
                assert self.by_conn[connection.conn] is connection
                assert self.by_client[connection.client] is connection
            if connection.ephemeral is not None:
                assert not connection.durable
                connection.ephemeral.check()
            if connection.second is not None:
                assert connection.ephemeral is not None and connection.ephemeral.inflight.keys() >= connection.second.lent.keys()
        assert all(self.by_socket.get(connection.socket) is connection for connection in self.by_conn.values())
        assert all(self.by_conn.get(connection.conn) is connection for connection in self.by_client.values())
        self.outbox.check()
