"""Faults of two session actors that serve one home, planted as those of tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from gateway.core import GatewayCore
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
                        connection.given = 0
                return due()

            return hasty

        self.replace(moving, "due", make)


class Forgetful(Planted):
    """A gateway says nothing of one kind of what its connections have seen of QoS 2."""

    kind: int

    def gateway(self, core: GatewayCore) -> None:
        connecting: Any = core._connecting

        def make(attach: Any) -> Any:
            def attaches(connection: Any) -> None:
                outbox = connecting._state.outbox

                def to_session(session: int, frame: Any) -> None:
                    said = [frame.unreleased, frame.had_pubrel, frame.refused]
                    said[self.kind] = ()
                    del outbox.to_session
                    outbox.to_session(session, frame._replace(unreleased=said[0], had_pubrel=said[1], refused=said[2]))

                outbox.to_session = to_session
                attach(connection)

            return attaches

        self.replace(connecting, "_attach", make)


class SentAgain(Forgetful):
    name = "a QoS 2 PUBLISH is sent again on a connection that has it"
    kind = 0


class AnswersUntold(Planted):
    name = "the next session actor is not told of the PUBRECs that came meanwhile"

    def gateway(self, core: GatewayCore) -> None:
        connecting: Any = core._connecting

        def make(moved: Any) -> Any:
            def silent(connection: Any, frame: Any) -> bool:
                shakes, connection.handshakes = connection.handshakes, None
                try:
                    return bool(moved(connection, frame))
                finally:
                    connection.handshakes = shakes

            return silent

        self.replace(connecting, "_moved", make)


class SeenIsReceived(Planted):
    name = "what a connection has seen of QoS 2 is taken for finished"

    def session(self, core: SessionCore) -> None:
        attaching: Any = core._attaching

        def make(attached: Any) -> Any:
            def hasty(session: Any, waiting: Any) -> None:
                attached(session, waiting)
                for number in range(session.two.committed + 1, session.two.out + 1):
                    if waiting.frame.moved and number not in session.received and not session.two.is_finished(number):
                        session.received[number] = 0
                        session.finish_two(number)
                        session.window.inflight -= 1
                session.ranges.progressed2()

            return hasty

        self.replace(attaching, "_attached", make)


class NotAskedAgain(Planted):
    name = "a SUBSCRIBE that the lost session actor has not answered is forgotten"

    def gateway(self, core: GatewayCore) -> None:
        self.replace(core._subscribing, "_ask_again", lambda _: lambda connection: None)


class SubscribesToNobody(Planted):
    name = "a SUBSCRIBE that comes while nobody has its connection is dropped"

    def gateway(self, core: GatewayCore) -> None:
        self.replace(core._subscribing, "_hold", lambda _: lambda connection, packet: None)


ALL: tuple[type[Planted], ...] = (
    SupersededGoesOn, MovedUnseen, ReplacedOwnerGoesOn, AttachedTooSoon, SubscribesToNobody, SentAgain, AnswersUntold, SeenIsReceived,
    NotAskedAgain,
)  # fmt: skip
