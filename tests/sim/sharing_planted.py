"""Faults of durable shared groups, planted as those of tests.sim.planted are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sessions.core import SessionCore
from sessions.options import BY_STREAM, ROUND_ROBIN
from shards.core import ShardCore
from shards.frames import TakeBack
from shards.rows import BEGUN, FINISHED, NOTHING_YET, unpack_row
from tests.sim.planting import Planted


class OldTokenGives(Planted):
    name = "an owner that was replaced still gives"

    def shard(self, core: ShardCore) -> None:
        self.replace(core._fences, "is_newest", lambda method: lambda home, token: True)


class LoadedTooEarly(Planted):
    name = "a group is loaded before all shards have said what members have"

    def session(self, core: SessionCore) -> None:
        groups: Any = core._groups

        def make(begin: Any) -> Any:
            def early(home: Any, found: Any) -> None:
                known = found.group in groups._groups
                begin(home, found)
                group = groups._groups[found.group]
                if not known and group.session is None and not group.attaching:
                    groups._attach(group)

            return early

        self.replace(groups, "_begin", make)


class SettledBeforeCommit(Planted):
    name = "a member's home forgets what its group has not committed"

    def session(self, core: SessionCore) -> None:
        groups: Any = core._groups

        def make(acknowledge: Any) -> Any:
            def at_once(group: Any, session: Any) -> None:
                settled = list(group._settled.items())
                acknowledge(group, session)
                groups._settle(group, settled)

            return at_once

        self.replace(groups, "_acknowledge", make)


class TakenFromTheConnected(Planted):
    name = "taken back from a client that is connected again"

    def shard(self, core: ShardCore) -> None:
        deliveries: Any = core._deliveries

        def make(take: Any) -> Any:
            def greedy(draft: Any, entry: Any, sender: str) -> Any:
                if isinstance(entry, TakeBack):
                    for group, number in list(deliveries._of_client.get(entry.client, ())):
                        if group == entry.group and deliveries._there[group][entry.client, number] in (NOTHING_YET, BEGUN):
                            deliveries._go_back(draft, group, entry.client, number)
                return take(draft, entry, sender)

            return greedy

        self.replace(deliveries, "take", make)


class GivenOnSilence(Planted):
    name = "what a member has is given to another when its home is away"

    def session(self, core: SessionCore) -> None:
        groups: Any = core._groups

        def make(lost: Any) -> Any:
            def impatient(shard: int) -> None:
                lost(shard)
                for group in groups._groups.values():
                    for number in group.numbers_at(shard):
                        group.back(number, group.held[number].client)

            return impatient

        self.replace(groups, "shard_lost", make)


class OutcomeNotKept(Planted):
    name = "what is finished is forgotten before its group knows"

    def shard(self, core: ShardCore) -> None:
        deliveries: Any = core._deliveries

        def make(outcome: Any) -> Any:
            def forgetful(draft: Any, client: bytes, suffix: bytes, value: bytes) -> None:
                outcome(draft, client, suffix, value)
                group, number = int.from_bytes(suffix[:8], "big"), int.from_bytes(suffix[8:], "big")
                if deliveries._there.get(group, {}).get((client, number)) == FINISHED:
                    deliveries._settle(draft, group, client, number)

            return forgetful

        self.replace(deliveries, "outcome", make)


class BegunNotSaid(Planted):
    name = "a QoS 2 PUBLISH leaves and its home does not know"

    def shard(self, core: ShardCore) -> None:
        def make(outcome: Any) -> Any:
            def deaf(draft: Any, client: bytes, suffix: bytes, value: bytes) -> None:
                if unpack_row(value)[0] != BEGUN:
                    outcome(draft, client, suffix, value)

            return deaf

        self.replace(core._deliveries, "outcome", make)


class LeaseNotKept(Planted):
    name = "messages of one topic are with two members at once"

    def session(self, core: SessionCore) -> None:
        groups: Any = core._groups

        def make(dispatch: Any) -> Any:
            def loose() -> None:
                for group in groups._groups.values():
                    if group.strategy == BY_STREAM:
                        group.use(replace(group.options, group_strategy=ROUND_ROBIN), "")
                dispatch()

            return loose

        self.replace(groups, "dispatch", make)


ALL: tuple[type[Planted], ...] = (
    OldTokenGives, LoadedTooEarly, SettledBeforeCommit, TakenFromTheConnected, GivenOnSilence, OutcomeNotKept, BegunNotSaid,
    LeaseNotKept,
)  # fmt: skip
