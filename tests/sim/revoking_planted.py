"""Faults of enforcement, planted as those of tests.sim.planted are: a place that does not ask, or asks of what was before."""

from __future__ import annotations

from typing import Any

from gateway.core import GatewayCore
from shards.core import ShardCore
from tests.sim.planting import Planted

_DUP = 8


class GuardDroppedAtResume(Planted):
    name = "guard dropped at resume"

    def gateway(self, core: GatewayCore) -> None:
        def make(attached: Any) -> Any:
            def unguarded(connection: Any, frame: Any) -> Any:
                connection.guard = None
                return attached(connection, frame)

            return unguarded

        self.replace(core._connecting, "attached", make)


class CacheOutlivesVersion(Planted):
    name = "cached topic outlives its version"

    def gateway(self, core: GatewayCore) -> None:
        def make(renewed: Any) -> Any:
            def remembering(connection: Any) -> None:
                before = connection.profile
                renewed(connection)
                if before is not None and connection.profile is not None:
                    connection.profile.readable.update(before.readable)

            return remembering

        self.replace(core._permitting, "renewed", make)


class RetainedSourceNotAsked(Planted):
    name = "retained source not asked"

    def shard(self, core: ShardCore) -> None:
        self.replace(core._judging, "may_be_kept", lambda method: lambda *args: True)


class PeerForwardsUnguarded(Planted):
    name = "peer forwards unguarded"

    def gateway(self, core: GatewayCore) -> None:
        state: Any = core._state

        def make(forwarded: Any) -> Any:
            def unguarded(frame: Any) -> None:
                subs = [sub for connection in state.by_socket.values() for sub in connection.subs.values()]
                guards = [sub.guard for sub in subs]
                for sub in subs:
                    sub.guarded(None)
                forwarded(frame)
                for sub, guard in zip(subs, guards, strict=True):
                    sub.guarded(guard)

            return unguarded

        self.replace(core._fanout, "forwarded", make)


class WillJudgedByConnectOnly(Planted):
    name = "will judged by CONNECT only"

    def shard(self, core: ShardCore) -> None:
        self.replace(core._judging, "may_enter", lambda method: lambda *args: True)


class DupNotSuppressed(Planted):
    name = "DUP not suppressed"

    def gateway(self, core: GatewayCore) -> None:
        state: Any = core._state

        def make(deliver: Any) -> Any:
            def unguarded(frame: Any) -> None:
                for row in frame.to:
                    connection = state.by_conn.get(row[0])
                    guard = connection.guard if connection is not None else None
                    again = any(first & _DUP for first in row[3])
                    if again and guard is not None:
                        connection.guard = None
                    deliver(frame._replace(to=[row]))
                    if again and guard is not None:
                        connection.guard = guard

            return unguarded

        self.replace(core._egress, "deliver", make)


class SubscriptionsNotGuardedAtOnce(Planted):
    name = "subscriptions keep what they were let off when rules change"

    def gateway(self, core: GatewayCore) -> None:
        def make(renewed: Any) -> Any:
            def lenient(connection: Any) -> None:
                free = [sub for sub in connection.subs.values() if sub.guard is None]
                renewed(connection)
                for sub in free:
                    sub.guarded(None)

            return lenient

        self.replace(core._permitting, "renewed", make)


class WindowNotAskedAgain(Planted):
    name = "what waits for a window is not asked again"

    def gateway(self, core: GatewayCore) -> None:
        def make(refill: Any) -> Any:
            def unguarded(connection: Any) -> None:
                guard, connection.guard = connection.guard, None
                refill(connection)
                connection.guard = guard

            return unguarded

        self.replace(core._egress, "refill", make)


class RefusedWithoutItsHome(Planted):
    name = "a refused QoS 2 PUBLISH is answered without asking its home"

    def gateway(self, core: GatewayCore) -> None:
        def make(mixed: Any) -> Any:
            def at_once(connection: Any, *args: Any) -> None:
                present, connection.present = connection.present, False
                mixed(connection, *args)
                connection.present = present

            return at_once

        self.replace(core._inbound, "_mixed", make)


ALL: tuple[type[Planted], ...] = (
    GuardDroppedAtResume, CacheOutlivesVersion, RetainedSourceNotAsked, PeerForwardsUnguarded, WillJudgedByConnectOnly, DupNotSuppressed,
    SubscriptionsNotGuardedAtOnce, WindowNotAskedAgain, RefusedWithoutItsHome,
)  # fmt: skip
