"""Faults of two session actors that serve one home, planted as those of tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from gateway.core import GatewayCore
from mqtt.packets import Subscribe
from sessions.core import SessionCore
from tests.sim.planted import ReplacedOwnerGoesOn
from tests.sim.planting import Planted


class SupersededGoesOn(Planted):
    name = "a session actor goes on after it was superseded"

    def session(self, core: SessionCore) -> None:
        """What it hears of the newer owner means nothing to it; what it has attached stays so, and it commits under its old token."""

        def make(_: Any) -> Any:
            return lambda home: None

        self.replace(core._attaching, "replaced", make)


class MovedUnseen(Planted):
    name = "connections stay open when their session actor is another one"

    def gateway(self, core: GatewayCore) -> None:
        connecting: Any = core._connecting

        def kept(session: int) -> None:
            connecting._state.sessions_linked.pop(session, None)

        self.replace(connecting, "session_lost", lambda _: kept)


class AttachedTooSoon(Planted):
    name = "attached again while its client still owes answers"

    def gateway(self, core: GatewayCore) -> None:
        moving: Any = core._connecting._moving

        def make(due: Any) -> Any:
            def hasty() -> Any:
                for waiting in moving._waiting.values():
                    for connection in waiting:
                        connection.given, connection.releasing = 0, {}
                return due()

            return hasty

        self.replace(moving, "due", make)


class SubscribesToNobody(Planted):
    name = "a SUBSCRIBE is handed on while nobody has attached its connection"

    def gateway(self, core: GatewayCore) -> None:
        subscribing: Any = core._subscribing

        def make(_: Any) -> Any:
            def handed_on(connection: Any, packet: Any) -> None:
                connection.moving = False
                try:
                    (subscribing.subscribe if isinstance(packet, Subscribe) else subscribing.unsubscribe)(connection, packet)
                finally:
                    connection.moving = True

            return handed_on

        self.replace(subscribing, "_hold", make)


ALL: tuple[type[Planted], ...] = (
    SupersededGoesOn, MovedUnseen, ReplacedOwnerGoesOn, AttachedTooSoon, SubscribesToNobody,
)  # fmt: skip
