"""A leader that was deposed and cannot hear of it shows nobody a retained message that is not the newest."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from pathlib import Path

import pytest

from actors.endpoints import Endpoint
from actors.shard_client import ShardClient
from actors.wire import Wire
from mqtt.body import strip_properties
from shards.frames import Connect, Connected, Entry, Frame, Publish, Published, Reply, Result, RetainedMessages, RetainedPage
from shards.messages import header
from tests.actors.replica.faulty_sites import FaultySites
from tests.actors.replica.three_sites import HOSTS, SECRET, Site
from tests.actors.two_sites import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WAITS_S = 3.0
"""Nobody is told anything meanwhile; it would be told in a few milliseconds."""


class Gateway:
    """Linked with the copy of one site, whoever leads."""

    def __init__(self, site: Site) -> None:
        name = f"gateway-0@x:{time.time_ns():016x}{secrets.token_hex(4)}"
        endpoint = Endpoint(host=HOSTS[site.name], port=site.port + 1)
        self.client = ShardClient(0, lambda: endpoint, self, Wire(SECRET), "gateway", name)
        self._waiting: deque[asyncio.Future[list[Reply]]] = deque()
        self.told: list[list[bytes]] = []
        """Payloads, for each question."""
        self.client.start()

    async def publish(self, publisher: bytes, payload: bytes) -> None:
        """A retained message."""
        await until(lambda: self.client.linked)
        (connected,) = await self._ask(Connect(publisher, True, 0, 5, None))
        assert isinstance(connected, Connected)
        now_ms = time.time_ns() // 1_000_000
        (published,) = await self._ask(Publish(publisher, connected.conn, False, now_ms, b"\3", [1], [b"kept"], [b"\0" + payload]))
        assert isinstance(published, Published) and not published.stale

    def question(self) -> None:
        self.client.query(1, RetainedPage(b"kept", b"", 10))

    def _ask(self, entry: Entry) -> asyncio.Future[list[Reply]]:
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.client.ask(1, [entry])
        return future

    # ---- ShardListener

    def shard_linked(self, shard: int) -> None:
        pass

    def shard_lost(self, shard: int) -> None:
        pass

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        self._waiting.popleft().set_result(replies)

    def shard_told(self, shard: int, frame: Frame) -> None:
        if isinstance(frame, Result):
            assert isinstance(frame.told, RetainedMessages)
            self.told.append([strip_properties(header(value)[4]) for value in frame.told.values])


async def test_who_is_cut_off_with_a_deposed_leader_gets_no_older_retained_message(tmp_path: Path) -> None:
    """It is not answered, and asks the one who leads when it has found him."""
    async with FaultySites(tmp_path) as sites:
        await until(lambda: sites.leading() is not None)
        deposed = sites.leading()
        assert deposed is not None
        beside = Gateway(deposed)
        await beside.publish(b"first", b"older")
        beside.question()
        await until(lambda: beside.told == [[b"older"]])
        held = [deposed.asks, *(line for ends, line in sites.lines.items() if deposed.name in ends)]
        for line in held:
            line.hold()
        await until(lambda: sites.leader() not in (None, deposed))
        leader = sites.leader()
        assert leader is not None
        elsewhere = Gateway(leader)
        await elsewhere.publish(b"second", b"newer")
        beside.question()
        await asyncio.sleep(WAITS_S)
        assert beside.told == [[b"older"]] and beside.client.linked and deposed.starts == 1
        elsewhere.question()
        await until(lambda: elsewhere.told == [[b"newer"]])
        for line in held:
            line.let_go()
        await until(lambda: deposed.starts == 2)
        for gateway in (beside, elsewhere):
            await gateway.client.stop()
        assert not sites.wrong()
