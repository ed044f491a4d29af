"""The shell of a replica that is alone: what a full disk does to it, and in which order its owner hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.endpoints import Endpoint
from actors.replica.copy import Copy, open_copy
from actors.replica.peers import Peers
from actors.replica.shell import ReplicaShell, Told
from actors.wire import Wire
from shards.committer import Record
from shards.engine import HOME_FAMILY, Engine, Op, StoreFull
from shards.engine_memory import MemoryEngine
from shards.replication.configuration import first
from shards.replication.entry import Kind
from shards.replication.events import Committed, Serve, Submit
from shards.replication.ports import Outcome
from shards.replication.register import Held
from tests.actors.two_sites import until

SITE = "a" * 16


class Register:
    """In memory."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}

    async def read(self, key: str) -> Held | None:
        return self.held.get(key)

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        held = self.held.get(key)
        if version != (held.version if held else 0):
            return Outcome.CONFLICT
        self.held[key] = Held(new, version + 1)
        return Outcome.DONE

    async def list(self, prefix: str) -> dict[str, Held]:
        return self.held

    async def close(self) -> None:
        pass


class FullEngine(MemoryEngine):
    full = False

    def write(self, ops: Sequence[Op]) -> None:
        if self.full:
            raise StoreFull("no room")
        super().write(ops)


class Owner:
    """Submits the next record whenever it hears that one is committed, up to `goes_on`."""

    def __init__(self) -> None:
        self.told_of: list[Told] = []
        self.shell: ReplicaShell
        self.goes_on = 0
        self._hearing = False

    def told(self, effect: Told) -> None:
        assert not self._hearing, "told while it is being told"
        self._hearing = True
        self.told_of.append(effect)
        if isinstance(effect, Committed) and effect.position < self.goes_on:
            assert self.submit(effect.position + 1) is None
        self._hearing = False

    def submit(self, position: int) -> str | None:
        heard = len(self.told_of)
        record = Record(position, [(HOME_FAMILY, b"key%d" % position, b"value")])
        refused = self.shell.submit(Submit(Kind.RECORD, record.encode(), position))
        assert len(self.told_of) == heard, "told in the middle of a submit"
        return refused

    @property
    def committed(self) -> int:
        return max((each.position for each in self.told_of if isinstance(each, Committed)), default=-1)


@asynccontextmanager
async def alone(tmp_path: Path) -> AsyncIterator[tuple[Owner, Any, Copy]]:
    engine = FullEngine()

    def opened(path: str) -> Engine:
        return engine

    copy = open_copy(tmp_path / "0", 0, 1, SITE, opened)
    owner, register = Owner(), Register()
    register.held["shards/0"] = Held(first(frozenset((copy.rid,)), "first").pack(), 1)
    where: dict[str, Endpoint] = {}
    owner.shell = ReplicaShell(0, copy, register, "shards/0", Peers(copy.rid, where.get, Wire(b"secret")), owner)
    owner.shell.start()
    try:
        await until(lambda: bool(owner.told_of))
        assert isinstance(owner.told_of[0], Serve)
        yield owner, engine, copy
    finally:
        await owner.shell.close()
        copy.close()


@pytest.mark.slow
async def test_records_are_committed_in_order_also_those_handed_in_while_one_is_told(tmp_path: Path) -> None:
    """Nobody hears of anything in the middle of what it does."""
    async with alone(tmp_path) as (owner, engine, _):
        owner.goes_on = 20
        assert owner.submit(1) is None
        await until(lambda: owner.committed == 20)
        assert [row[0] for row in engine.scan(HOME_FAMILY, b"key", b"kez", 100)] == sorted(b"key%d" % each for each in range(1, 21))


@pytest.mark.slow
async def test_a_full_disk_of_the_data_holds_everything_until_there_is_room(tmp_path: Path) -> None:
    """What is committed is applied later and then told; meanwhile nothing more is taken."""
    async with alone(tmp_path) as (owner, engine, _):
        engine.full = True
        assert owner.submit(1) is None
        await until(lambda: bool(owner.shell.full))
        assert "no room" in str(owner.submit(2))
        await asyncio.sleep(0)
        assert owner.committed < 1
        engine.full = False
        await until(lambda: owner.committed == 1)
        assert owner.submit(2) is None
        await until(lambda: owner.committed == 2)


@pytest.mark.slow
async def test_a_full_disk_of_the_log_refuses_the_record_only(tmp_path: Path) -> None:
    """It may come again under its position."""
    async with alone(tmp_path) as (owner, _, copy):
        append = copy.log.append

        def full(entries: object) -> None:
            raise StoreFull("no room")

        copy.log.append = full  # type: ignore[method-assign]
        assert "no room" in str(owner.submit(1))
        copy.log.append = append  # type: ignore[method-assign]
        assert owner.submit(1) is None
        await until(lambda: owner.committed == 1)
