"""PostgreSQL as target, against Debian's server: once, whatever dies when; rows that are refused; tables of one's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bridge.port import Accepted, Batch, Misconfigured, Outcome, Unavailable
from bridge.targets.postgresql import PostgresqlTarget
from config.bridge_kinds import Postgresql
from tests.bridge.batches import STORE, batch, context, message
from tests.bridge.databases import Cluster
from tests.bridge.peers import PostgresqlPeer, what

pytestmark = [pytest.mark.slow, pytest.mark.needs("postgresql")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.start()
    yield made
    made.end()


@pytest.fixture
async def database(cluster: Cluster, tmp_path: Path) -> AsyncIterator[PostgresqlPeer]:
    peer = PostgresqlPeer(tmp_path)
    peer.cluster = cluster
    await peer.start()
    yield peer
    await peer.end()


async def test_it_remembers_how_far_it_is(database: PostgresqlPeer) -> None:
    """In the database; what comes again all the same is settled, and is no second row."""
    first = database.target()
    assert await first.open() is None
    assert await first.deliver(batch(range(1, 11))) == Outcome(10)
    await first.close()
    second = database.target()
    assert await second.open() is None and second._at == Accepted("made-1", 10)  # type: ignore[attr-defined]
    assert await second.deliver(batch(range(8, 13))) == Outcome(5)
    await second.close()
    assert await database.got() == what(batch(range(1, 13)))


async def test_of_two_processes_of_one_bridge_the_older_writes_nothing_any_more(database: PostgresqlPeer) -> None:
    """One that was believed dead and is not."""
    older, newer = database.target(), database.target()
    await older.open()
    await newer.open()
    assert await newer.deliver(batch(range(1, 6))) == Outcome(5)
    with pytest.raises(Unavailable, match="another process"):
        await older.deliver(batch(range(1, 4)))
    await older.close()
    await newer.close()
    assert await database.got() == what(batch(range(1, 6)))


async def test_after_a_rewind_a_message_is_still_one_row(database: PostgresqlPeer) -> None:
    """Its number is another one, its position is not."""
    target = database.target()
    await target.open()
    await target.deliver(batch(range(1, 6)))
    again = tuple([each._replace(number=each.number + 100) for each in batch(range(3, 6)).messages])
    assert await target.deliver(Batch("made-1", again)) == Outcome(3)
    await target.close()
    assert await database.got() == what(batch(range(1, 6)))


async def test_columns_hold_what_the_message_has(database: PostgresqlPeer) -> None:
    """As types of the database."""
    target = database.target()
    await target.open()
    await target.deliver(Batch("made-1", (message(1, user_properties=(("a", "1"), ("a", "2")), content_type="x/y", retain=True),)))
    await target.close()
    columns = "topic, qos, retain, extract(epoch from published_at), publisher, content_type, user_properties->1->>1"
    rows = await asyncio.to_thread(database.sql, f"SELECT {columns} FROM holdfast_messages")
    assert rows == [["plant/1", "1", "t", "1790000000.001000", "sensor-ä", "x/y", "2"]]


async def test_a_table_of_ones_own_gets_columns_by_jmespath_and_refuses_what_does_not_fit(database: PostgresqlPeer) -> None:
    """The database makes its types of them; a value that is none of the type, or breaks a constraint, is refused alone."""
    await asyncio.to_thread(
        database.sql,
        "CREATE TABLE warmth (store text, shard int, position bigint, celsius double precision NOT NULL CHECK (celsius < 200),"
        ' "At" timestamptz, raw jsonb, PRIMARY KEY (store, shard, position))',
    )
    expressions = '{"celsius": "payload.t", "At": "published_at", "raw": "payload"}'
    target = PostgresqlTarget(Postgresql(url=database.url, table="warmth", columns=expressions), context(database.directory))
    await target.open()
    payloads = [b'{"t": 21.5}', b'{"t": "cold"}', b'{"t": 900}', b'{"u": 1}', b'{"t": 4, "s": "\\u0000"}', b'{"t": -3}']
    outcome = await target.deliver(Batch("made-1", tuple([message(n, payload=payload) for n, payload in enumerate(payloads, 1)])))
    await target.close()
    assert outcome.done == 6 and [each.index for each in outcome.refused] == [1, 2, 3, 4]
    rows = await asyncio.to_thread(database.sql, 'SELECT position, celsius, raw, "At" IS NOT NULL FROM warmth ORDER BY 1')
    assert rows == [["1000001", "21.5", '{"t": 21.5}', "t"], ["1000006", "-3", '{"t": -3}', "t"]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"table": "nowhere", "columns": '{"a": "topic"}'}, "nowhere"),
        ({"table": "keyless", "columns": '{"a": "topic"}'}, "constraint"),
        ({"columns": '{"a": "topic["}'}, "JMESPath"),
    ],
)
async def test_what_somebody_has_to_mend_is_said(settings: dict[str, Any], words: str, database: PostgresqlPeer) -> None:
    """A table that is not there, or has no key, refuses no message."""
    await asyncio.to_thread(database.sql, "CREATE TABLE keyless (store text, shard int, position bigint, a text)")
    with pytest.raises(Misconfigured, match=words):
        await _carried(database, settings)


async def _carried(database: PostgresqlPeer, settings: dict[str, Any]) -> None:
    target = PostgresqlTarget(Postgresql(url=database.url, **settings), context(database.directory))
    try:
        await target.open()
        await target.deliver(batch([1]))
    finally:
        await target.close()


async def test_a_database_that_is_not_there_is_somebodys_to_make(database: PostgresqlPeer) -> None:
    """Trying again would not make it."""
    target = PostgresqlTarget(Postgresql(url=database.url.replace(database.database, "no_such")), context(database.directory))
    with pytest.raises(Misconfigured, match="no_such"):
        await target.open()
    await target.close()


async def test_a_database_that_is_killed_loses_nothing_it_has_acknowledged(database: PostgresqlPeer) -> None:
    """kill -9 of the server between and during batches: in the end each message is one row."""
    position, left, accepted = 1, 200, 0
    target = None
    async with asyncio.timeout(120):
        while position <= left:
            try:
                if target is None:
                    target = database.target()
                    await target.open()
                    continue
                delivering = asyncio.create_task(target.deliver(batch(range(position, position + 20))))
                if accepted in (40, 120):
                    accepted += 1
                    await asyncio.sleep(0.003)
                    await asyncio.to_thread(database.cluster.kill)
                    await asyncio.to_thread(database.cluster.start)
                position += (await delivering).done
                accepted += 20
            except Unavailable:
                assert target is not None
                await target.close()
                target = None
                await asyncio.sleep(0.1)
    assert target is not None
    await target.close()
    assert await database.got() == what(batch(range(1, position)))


class BrokenAtTheEnd:
    """A connection that breaks where a transaction ends, between two of its messages: asyncpg then takes itself to be in another call."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield
        self._connection.terminate()
        raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")


async def test_a_connection_that_breaks_within_a_call_is_no_fault_of_ours(database: PostgresqlPeer) -> None:
    """It is Unavailable, as every other one that breaks, and nothing of the batch is there."""
    target = database.target()
    await target.open()
    connection = target._connection  # type: ignore[attr-defined]
    target._connection = BrokenAtTheEnd(connection)  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="another operation"):
        await target.deliver(batch(range(1, 6)))
    await target.close()
    again = database.target()
    await again.open()
    assert await again.deliver(batch(range(1, 6))) == Outcome(5)
    await again.close()
    assert await database.got() == what(batch(range(1, 6)))


async def test_lanes_have_rows_of_their_own(database: PostgresqlPeer) -> None:
    """Each knows how far it is by itself; all make the same tables at once."""
    lanes = [PostgresqlTarget(Postgresql(url=database.url), context(database.directory, lane, 4)) for lane in range(4)]
    assert await asyncio.gather(*[lane.open() for lane in lanes]) == [None] * 4
    for number, lane in enumerate(lanes, 1):
        await lane.deliver(batch([number]))
        await lane.close()
    rows = await asyncio.to_thread(database.sql, "SELECT store, lane, number FROM holdfast_bridges ORDER BY lane")
    assert rows == [[STORE, str(lane), str(lane + 1)] for lane in range(4)]
