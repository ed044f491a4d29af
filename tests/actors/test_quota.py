"""The quota: at the mark publishers are refused, a generation that goes gives its room back, and then everything goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.alarms import read_alarms
from actors.quota import Quota, level_of, quota_bytes
from actors.reserve import stored_bytes
from config.load import load
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.broker import wire

MIB = 1 << 20
HOUR_MS = 3_600_000
QUOTA_EXCEEDED = 0x97


@pytest.mark.parametrize(
    ("taken", "before", "level"),
    [(0, 0, 0), (89, 0, 0), (90, 0, 1), (99, 1, 1), (100, 0, 2), (100, 1, 2), (99, 2, 2), (95, 2, 2), (94, 2, 1), (89, 2, 0), (89, 1, 0)],
)
def test_marks(taken: int, before: int, level: int) -> None:
    """Soft at 90 %, hard at 100 %, and from there back only below 95 %."""
    assert level_of(taken * MIB, 100 * MIB, before) == level


def test_without_a_quota_there_is_no_mark() -> None:
    """Whatever is stored."""
    assert level_of(1 << 60, None, 2) == 0


def test_what_the_setting_stands_for(tmp_path: Path) -> None:
    """auto is what the site was given; where there is no site, as in tests, there is no quota."""
    assert quota_bytes(load(sets=["storage_quota=3MiB"], environ={}), tmp_path) == 3 * MIB
    assert quota_bytes(load(sets=["storage_quota=unlimited"], environ={}), tmp_path) is None
    assert quota_bytes(load(environ={}), tmp_path) is None
    site = '{"format": 1, "site": "00", "incarnation": 1, "n_shards": 1, "created": "now", "quota_auto_bytes": 77}'
    (tmp_path / "site.json").write_text(site)
    assert quota_bytes(load(environ={}), tmp_path) == 77


async def test_a_change_is_told_once(tmp_path: Path) -> None:
    """With an alarm while it lasts, and again without when the quota is larger."""
    (tmp_path / "file").write_bytes(random.Random(1).randbytes(MIB))
    told: list[int] = []
    quota = Quota(tmp_path, tmp_path, "shard-0", MIB // 2, told.append, lambda: False)
    quota.start()
    await until(lambda: told == [2])
    assert [alarm.kind for alarm in read_alarms(tmp_path)] == ["quota"]
    quota.allow(100 * MIB)
    await until(lambda: told == [2, 0])
    assert read_alarms(tmp_path) == []
    quota.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def look(broker: OneLoop) -> None:
    """At once, and not at the next turn of 5 s."""
    for shard in broker.shards:
        shard._quota._again.set()


async def publish(hand: Hand, count: int) -> list[int]:
    """Messages of 32 KiB, one after the other; their reason codes."""
    noise = random.Random(count)
    codes = []
    for n in range(1, count + 1):
        hand.publish("a", noise.randbytes(16 << 10).hex(), 1, n)
        codes.append(await hand.answer(wire.PUBACK, n))
    return codes


@pytest.mark.slow
async def test_publishers_are_refused_at_the_mark_until_a_generation_has_gone(tmp_path: Path) -> None:
    """Refused with 0x97 while sessions go on; when the oldest generation is dropped its files are gone, and publishing goes on."""
    sets = (
        "storage_quota=64MiB",
        'durable_storage.messages.capture=["#"]',
        "durable_storage.messages.generation_length=1h",
        "durable_sessions.message_retention_period=1h",
    )
    async with OneLoop(tmp_path, sets=sets) as broker:
        (shard,) = broker.shards
        hand = await Hand.connect(broker.port, "p", 5)
        assert max(await publish(hand, 220)) == 0
        # Not from the beginning: where storing 7 MB takes 5 s, the look that comes then would refuse the last of them.
        shard._quota.allow(6 * MIB)
        await until(lambda: shard._quota.level == 2)
        assert await publish(hand, 3) == [QUOTA_EXCEEDED] * 3
        await hand.subscribe("b", 1)
        await hand.alive()
        full = stored_bytes(tmp_path / "shards")
        await broker.pass_time(HOUR_MS)
        shard._age._age_at_base += HOUR_MS
        await until(lambda: shard.counters()["generations_dropped"] == 1)
        await until(lambda: stored_bytes(tmp_path / "shards") < full // 2)
        look(broker)
        await until(lambda: shard._quota.level == 0)
        assert await publish(hand, 3) == [0] * 3
        assert shard.counters()["messages_refused"] == 3
        await hand.close()
