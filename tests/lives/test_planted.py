"""The table sees what it is there to see: faults planted into the shipped cores, each caught by a small part of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from gateway.core import GatewayCore
from shards.core import ShardCore
from shards.frames import LOST, Will
from tests.lives.simulated import live
from tests.lives.table import Ending, Life, sample
from tests.sim.planted import IdsEndWithConnection, LateDisconnect
from tests.sim.planted_identities import NoOwnerOfACleanStart, OwnerAskedLate
from tests.sim.planting import Planted

LIVES = 160
EXPIRY_AT, AGE_AT = 4, 5
"""Where they are among the arguments of Homes.disconnect."""


class OfHomes(Planted, ABC):
    """Changes what one method of the homes is asked, or what comes of it."""

    method = "connect"

    def shard(self, core: ShardCore) -> None:
        self.replace(core._homes, self.method, lambda asked: lambda *args: self.change(asked, list(args)))

    @abstractmethod
    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any: ...

    @staticmethod
    def with_will(entry: Any, **changed: Any) -> Any:
        return entry._replace(will=Will(*entry.will)._replace(**changed)) if entry.will else entry


class NewExpiryIgnored(OfHomes):
    name = "the expiry of a DISCONNECT is ignored"
    method = "disconnect"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(*args[:EXPIRY_AT], None, *args[EXPIRY_AT + 1 :])


class WillAfterDisconnect(OfHomes):
    name = "a DISCONNECT does not delete the will"
    method = "disconnect"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(*args[: EXPIRY_AT - 1], LOST, *args[EXPIRY_AT:])


class EverythingEarly(OfHomes):
    name = "delay and expiry are two seconds short"
    method = "disconnect"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(*args[:AGE_AT], args[AGE_AT] - 2_000, *args[AGE_AT + 1 :])


class EverythingLate(OfHomes):
    name = "delay and expiry are two seconds long"
    method = "disconnect"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(*args[:AGE_AT], args[AGE_AT] + 2_000, *args[AGE_AT + 1 :])


class CleanStartResumes(OfHomes):
    name = "clean start resumes"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(args[0], args[1]._replace(clean_start=False), *args[2:])


class AlwaysClean(OfHomes):
    name = "nothing is resumed"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(args[0], args[1]._replace(clean_start=True), *args[2:])


class DelayIgnored(OfHomes):
    name = "the will delay is ignored"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(args[0], self.with_will(args[1], delay_s=0), *args[2:])


class WillNotRetained(OfHomes):
    name = "a will is not retained"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(args[0], self.with_will(args[1], retain=False), *args[2:])


class TakeoverWithoutWill(OfHomes):
    name = "who is taken over has no will"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        told = asked(*args)
        args[4].wills.clear()
        return told


class TakeoverAlwaysWithWill(OfHomes):
    name = "a resume does not cancel the will"
    method = "_fence_older"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        return asked(*args[:2], False, *args[3:])


class OwnerOfMemoryNotAsked(OfHomes):
    name = "sessions in memory are anybody's"

    def change(self, asked: Callable[..., Any], args: list[Any]) -> Any:
        entry = args[1]
        session = self.homes.session(args[0], entry.client)
        if session is not None and session.memory and entry.client not in self.homes.live:
            args[1] = entry._replace(user=session.user)
        return asked(*args)

    def shard(self, core: ShardCore) -> None:
        self.homes = core._homes
        super().shard(core)


class SlowKeepAlive(Planted):
    name = "keep alive is twice as long"

    def gateway(self, core: GatewayCore) -> None:
        self.replace(core._connecting, "_keep_alive_s", lambda asked: lambda packet: 2 * asked(packet))


ALL: tuple[type[Planted], ...] = (
    NewExpiryIgnored,
    WillAfterDisconnect,
    EverythingEarly,
    EverythingLate,
    CleanStartResumes,
    AlwaysClean,
    DelayIgnored,
    WillNotRetained,
    TakeoverWithoutWill,
    TakeoverAlwaysWithWill,
    SlowKeepAlive,
    LateDisconnect,
    IdsEndWithConnection,
    NoOwnerOfACleanStart,
    OwnerAskedLate,
    OwnerOfMemoryNotAsked,
)


@cache
def some() -> list[Life]:
    return [life for life in sample(LIVES) if life.ending is not Ending.KILLED]


@pytest.mark.slow
def test_without_a_fault_nothing_is_found() -> None:
    """Otherwise the faults below would prove nothing."""
    assert live(some(), 1) == {}


@pytest.mark.slow
@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: type[Planted]) -> None:
    """In words: a crash would prove only that it was noticed somehow."""
    plant = fault()
    assert live(some(), 1, plant)
    assert plant.planted
