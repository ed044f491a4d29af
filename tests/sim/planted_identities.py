"""Faults of who a client is, whose a session is, and of two that take one client id from one another; planted as those of
tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from access.identity import ANONYMOUS, Identity
from gateway.core import GatewayCore
from shards.core import ShardCore
from tests.sim.planting import Planted

# ---------------------------------------------------------------------- who a client is


class ClaimedIsWho(Planted):
    name = "who a client is, is taken from what it says"

    def gateway(self, core: GatewayCore) -> None:
        def make(known: Any) -> Any:
            def claimed(connection: Any, packet: Any) -> bool:
                connection.identity = Identity(packet.username, "password") if packet.username else ANONYMOUS
                return True

            return claimed

        self.replace(core._authenticating, "known", make)


class OlderVerdictTaken(Planted):
    name = "a verdict of an older login attempt is taken"

    def gateway(self, core: GatewayCore) -> None:
        state: Any = core._state

        def make(asker: Any) -> Any:
            def any_attempt(event: Any) -> Any:
                connection = state.by_socket.get(event.socket)
                return connection if connection is not None and connection.exchange is not None else None

            return any_attempt

        self.replace(core._authenticating, "_asker", make)


# ---------------------------------------------------------------------- whose a session is


class NoOwnerOfACleanStart(Planted):
    name = "a clean start does not ask whose the session is"

    def shard(self, core: ShardCore) -> None:
        def make(keeps_off: Any) -> Any:
            return lambda session, older, entry, *rest: None if entry.clean_start else keeps_off(session, older, entry, *rest)

        self.replace(core._homes, "_keeps_off", make)


class OwnerAskedLate(Planted):
    name = "whose a session is, is asked when it has been ended"

    def shard(self, core: ShardCore) -> None:
        homes: Any = core._homes

        def make(connect: Any) -> Any:
            def late(draft: Any, entry: Any, gateway: str, age_ms: int, out: Any, *rest: Any) -> Any:
                reply = connect(draft, entry, gateway, age_ms, out, *rest)
                session = homes.session(draft, entry.client)
                if reply.refused and entry.clean_start and session is not None:
                    homes._end_session(draft, entry.client, session, age_ms, 500, out)
                return reply

            return late

        self.replace(homes, "connect", make)


class OwnerInRam(Planted):
    name = "after a restart of the home connections belong to nobody"

    def shard(self, core: ShardCore) -> None:
        for state in core._homes.live.values():
            self.planted += bool(state.user)
            state.user = b""


# ---------------------------------------------------------------------- two with one client id


class NobodyWaits(Planted):
    name = "nobody waits for a client id that is contended"

    def shard(self, core: ShardCore) -> None:
        self.replace(core._homes.contention, "takes", lambda takes: lambda *args: (0, False))


class WaitingEndsTheOther(Planted):
    name = "who has to wait for a client id ends the one that is there"

    def shard(self, core: ShardCore) -> None:
        homes: Any = core._homes

        def make(connect: Any) -> Any:
            def hasty(draft: Any, entry: Any, gateway: str, age_ms: int, out: Any, *rest: Any) -> Any:
                reply = connect(draft, entry, gateway, age_ms, out, *rest)
                if reply.retry_ms:
                    homes._fence_older(draft, entry.client, True, out)
                return reply

            return hasty

        self.replace(homes, "connect", make)


class FightUnreported(Planted):
    name = "nobody is told of a client id that is contended"

    def shard(self, core: ShardCore) -> None:
        self.replace(core._homes.contention, "takes", lambda takes: lambda *args: (takes(*args)[0], False))


OF_IDENTITIES: tuple[type[Planted], ...] = (
    ClaimedIsWho, OlderVerdictTaken, NoOwnerOfACleanStart, OwnerAskedLate, OwnerInRam, NobodyWaits, WaitingEndsTheOther, FightUnreported,
)  # fmt: skip
