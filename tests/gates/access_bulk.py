"""Walks the cases of APPEND and SCAN through a broker: A before the rights change, B a second behind it.

Requests are made one after the other in a thread, since they wait. One that begins later than a second behind the change and is granted
is a leak, whatever it brings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from actors.reader.demand import demand
from holdfast_spark.client import Client, Endpoint, Unit
from holdfast_spark.protocol import Code, Refused
from tests.access_paths.bulk import Bulk
from tests.access_paths.talking import Talker
from tests.gates.access_walking import COMES_WITHIN_S, SETTLES_S, WITHIN_S, by_weight

_EMPTY_PROPERTIES = b"\0"


class Reader:
    """What the tokens do at the reader of one broker."""

    def __init__(self, data_dir: Path, open_clients: ExitStack) -> None:
        """Each connection lasts until it is let go, or open_clients ends."""
        self._address = demand(data_dir)
        self._open = open_clients
        self._clients: dict[int, Client] = {}
        self._own = self._connect((data_dir / "pipeline.token").read_text().strip())

    def let_go(self, case: Bulk) -> None:
        self._clients.pop(case.number).close()

    def append(self, case: Bulk, which: str, block: int) -> bool:
        """Whether it was granted."""
        columns = [case.client.encode()], [case.topic.encode()], [_EMPTY_PROPERTIES + case.mark(which)]
        return self._granted(lambda: self._of(case).append(case.name, 0, block, b"\2", *columns))

    def units(self) -> list[Unit]:
        """All that is stored, as the broker's own token finds it: who may plan nothing could otherwise ask for no unit."""
        cuts = {int(shard): int(found["cut"]) for shard, found in self._own.cuts()["shards"].items()}
        plan = self._own.plan(dict.fromkeys(cuts, 0), cuts, ["bulk/#"], None, None, 100_000)
        return [Unit(each["shard"], each["generation"], each["from"], each["to"]) for each in plan["units"]]

    def scan(self, case: Bulk, units: Sequence[Unit], into: list[bytes]) -> bool:
        """Whether it was granted."""

        def scanned() -> None:
            store = str(self._of(case).hello()["store"])
            for unit in units:
                into.extend(bytes(block.values) for block in self._of(case).scan(store, unit, [case.topic_filter]))

        return self._granted(scanned)

    @staticmethod
    def _granted(request: Callable[[], object]) -> bool:
        try:
            request()
        except Refused as refused:
            if refused.code != Code.FORBIDDEN:
                raise
            return False
        return True

    def _of(self, case: Bulk) -> Client:
        if case.number not in self._clients:
            self._clients[case.number] = self._connect(case.token)
        return self._clients[case.number]

    def _connect(self, token: str) -> Client:
        return self._open.enter_context(Client(Endpoint((self._address,), token)))


async def walk_bulk(cases: Sequence[Bulk], data_dir: Path, port: int, change: Callable[[], float]) -> list[str]:
    """change: puts other rules and filters in force, and says when that was."""
    others = {case: Talker(port, case.client, 5) for case in cases}
    got: dict[Bulk, list[bytes]] = {case: [] for case in cases}
    for case, other in others.items():
        await other.connect()
        if case.verb == "APPEND":
            await other.subscribe(case.topic_filter, 1)
    with ExitStack() as open_clients:
        reader = await asyncio.to_thread(Reader, data_dir, open_clients)
        wrong = await _round(reader, others, got, "A", changed=False)
        for case in cases:
            if case.when == "revoked while away":
                await asyncio.to_thread(reader.let_go, case)
        changed_at = await asyncio.to_thread(change)
        await asyncio.sleep(max(0.0, changed_at + WITHIN_S - time.monotonic()))
        wrong += await _round(reader, others, got, "B", changed=True)
    await _come(others)
    for case, other in others.items():
        wrong += _faults(case, b"".join(got[case]) if case.verb == "SCAN" else b"".join([around for _, _, around in other.got]))
        await other.vanish(politely=True)
    return by_weight(wrong)


async def _round(reader: Reader, others: dict[Bulk, Talker], got: dict[Bulk, list[bytes]], which: str, *, changed: bool) -> list[str]:
    for case, other in others.items():
        if case.verb == "SCAN":
            other.publish(case.topic, case.mark(which), 1)
    await asyncio.sleep(SETTLES_S)
    units = await asyncio.to_thread(reader.units)
    wrong = []
    for case in others:
        if case.verb == "SCAN":
            granted = await asyncio.to_thread(reader.scan, case, units, got[case])
        else:
            granted = await asyncio.to_thread(reader.append, case, which, int(changed))
        if granted == case.denied(changed):
            wrong.append(f"LEAK {case}: {which} was granted" if granted else f"{case}: {which} was refused")
    return wrong


async def _come(others: dict[Bulk, Talker]) -> None:
    """Until all is there that has to come, or a time is over."""
    deadline = time.monotonic() + COMES_WITHIN_S
    while time.monotonic() < deadline:
        if all(other.when(mark) for case, other in others.items() if case.verb == "APPEND" for mark in case.wanted()):
            break
        await asyncio.sleep(0.2)
    await asyncio.sleep(SETTLES_S)


def _faults(case: Bulk, came: bytes) -> Iterator[str]:
    wanted = {*case.wanted()}
    for which in "AB":
        mark = case.mark(which)
        if (mark in came) != (mark in wanted):
            yield f"LEAK {case}: {mark.decode()} came" if mark in came else f"{case}: {mark.decode()} did not come"
