"""Ends of sessions with real servers, sockets, clocks and RocksDB."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from actors.accepted import accept_clock, clock_accepted
from actors.clocks import read_clocks
from actors.datadir import read_site
from actors.shard import ShardServer
from cli.main import app
from shards.clock import AgeMark, Reading
from shards.engine import HOME_FAMILY
from shards.engine_rocks import RocksEngine
from shards.housekeeping import AGE_ROW
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.shards.ended import rows

pytestmark = [pytest.mark.slow]
WITHIN_S = 60.0
EXPIRY_S = 120
EXPIRED_MS = 121_000


def left(broker: OneLoop) -> list[dict[str, int]]:
    return [rows(shard._engine) for shard in broker.shards]


async def until_gone(broker: OneLoop, kinds: str) -> tuple[float, float]:
    """Seconds until no shard has rows of these kinds, and how many of them this loop was kept from its turns."""
    begun = seen = time.monotonic()
    stood_s = 0.0
    while any(kind in found for found in left(broker) for kind in kinds):
        assert seen < begun + WITHIN_S, left(broker)
        await asyncio.sleep(0.01)
        stood_s += max(0.0, time.monotonic() - seen - 0.03)
        seen = time.monotonic()
    return seen - begun, stood_s


def stopped_before(broker: OneLoop, ms: int, boot_id: str = "") -> None:
    """The store of a stopped broker as if that were so much longer ago, in this boot of the machine or in another."""
    engine = RocksEngine(str(broker.topology.store_path(0)))
    row = engine.get(HOME_FAMILY, AGE_ROW)
    assert row is not None
    mark = AgeMark.decode(row)
    then = mark.reading
    reading = Reading(then.wall_ms - ms, boot_id or then.boot_id, then.boottime_ms - ms)
    engine.write([(HOME_FAMILY, AGE_ROW, AgeMark(mark.age_ms, reading, mark.suspended).encode())])
    engine.sync()
    engine.close()


async def until_older(shard: ShardServer, ms: int) -> None:
    """The shard has taken a turn in which its age was so much higher than now."""
    shard._age._age_at_base += ms
    wanted = shard._age.age_ms(read_clocks())
    deadline = time.monotonic() + WITHIN_S
    while shard._core._housekeeping._age_ms < wanted:
        assert time.monotonic() < deadline, wanted
        await asyncio.sleep(0.01)


async def test_sessions_end_in_the_second_after_their_time(tmp_path: Path) -> None:
    """Not before it; and with them their subscriptions, and their routes in both shards."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        hands = [await Hand.connect(broker.port, f"c-{n}", 5, expiry_s=1) for n in range(10)]
        for n, hand in enumerate(hands):
            await hand.subscribe(f"t/{n}/+", 1)
        for n, hand in enumerate(hands):
            if n % 2:
                hand.drop()
            else:
                await hand.close()
        took_s, stood_s = await until_gone(broker, "s")
        assert 0.8 < took_s < 2.0 + stood_s
        await until_gone(broker, "upqrewR")
        assert broker.sessions[0].counters()["routes_removed"] == 10 and not broker.sessions[0].counters()["routes_collected"]
        assert all(not any(shard.counters()[name] for name in shard.counters() if name.startswith("gc_found")) for shard in broker.shards)
        assert sum(shard.counters()["sessions_expired"] for shard in broker.shards) == 10
        assert max(shard.counters()["timers_late_ms_max"] for shard in broker.shards) < 1_000 * (1 + stood_s)


@pytest.mark.parametrize(("down_ms", "present"), [(200, True), (120_200, False)])
async def test_the_time_while_the_broker_is_down_counts(tmp_path: Path, down_ms: int, present: bool) -> None:
    """By elapsed time: whoever comes after the end finds no session, at once after the start."""
    async with OneLoop(tmp_path) as broker:
        hand = await Hand.connect(broker.port, "c", 5, expiry_s=EXPIRY_S)
        await hand.subscribe("t", 1)
        await hand.close()
    stopped_before(broker, down_ms)
    async with OneLoop(tmp_path) as broker:
        hand = await Hand.connect(broker.port, "c", 5, expiry_s=EXPIRY_S)
        await hand.close()
    assert hand.present is present


async def test_nothing_ends_by_a_clock_that_jumped_until_somebody_accepts_it(tmp_path: Path) -> None:
    """A machine that boots with its clock ten years ahead: the session waits; `accept-clock` lets it end."""
    async with OneLoop(tmp_path) as broker:
        hand = await Hand.connect(broker.port, "c", 5, expiry_s=EXPIRY_S)
        await hand.close()
    stopped_before(broker, 10 * 365 * 86_400_000, boot_id="another boot")
    async with OneLoop(tmp_path) as broker:
        (shard,) = broker.shards
        await until_older(shard, EXPIRED_MS)
        assert left(broker)[0]["s"] == 1 and shard.counters()["expiry_suspended"] == 1
        accept_clock(tmp_path)
        await until_gone(broker, "s")
        assert shard.counters()["expiry_suspended"] == 0
    # It is remembered over a restart, and is said for this boot only.
    async with OneLoop(tmp_path) as broker:
        assert broker.shards[0].counters()["expiry_suspended"] == 0
    (tmp_path / "accepted-clock").write_text("another boot")
    assert not clock_accepted(tmp_path)


def test_the_command_says_what_it_did_and_refuses_other_directories(tmp_path: Path) -> None:
    """One sentence each."""
    said = CliRunner().invoke(app, ["storage", "accept-clock", "--data-dir", str(tmp_path)])
    assert said.exit_code == 1 and "is not the data directory of a broker" in said.stderr
    assert read_site(tmp_path) is None and not clock_accepted(tmp_path)


async def test_a_session_that_a_lost_session_actor_served_expires_all_the_same(tmp_path: Path) -> None:
    """The home ends it; what is left is done by the next owner."""
    async with OneLoop(tmp_path) as broker:
        hand = await Hand.connect(broker.port, "c", 5, expiry_s=EXPIRY_S)
        await hand.subscribe("t/#", 1)
        await hand.close()
        await broker.sessions[0].stop()
        while "s" in left(broker)[0]:
            # More than once, as its home may not know yet that it is away.
            await until_older(broker.shards[0], EXPIRED_MS)
        assert left(broker)[0]["R"] == 1
        await broker.kill_session()
        await until_gone(broker, "Rw")


def test_the_age_is_made_of_the_time_since_boot() -> None:
    """CLOCK_BOOTTIME goes on while the machine sleeps, and no step of the wall clock moves it."""
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    assert before <= read_clocks().boottime_ms <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def test_the_disk_gets_the_space_of_ended_sessions_back(tmp_path: Path) -> None:
    """By compactions that RocksDB does by itself where most of a file is deletions; nobody has to ask for one."""
    engine = RocksEngine(str(tmp_path))
    rng = random.Random(1)
    keys = [b"u" + n.to_bytes(4, "big") * 4 for n in range(10_000)]
    for at in range(0, len(keys), 1_000):
        engine.write([(HOME_FAMILY, key, rng.randbytes(300)) for key in keys[at : at + 1_000]])
    engine._rdict(HOME_FAMILY).flush()
    full = table_bytes(tmp_path)
    for at in range(0, len(keys), 1_000):
        engine.write([(HOME_FAMILY, key, None) for key in keys[at : at + 1_000]])
    engine._rdict(HOME_FAMILY).flush()
    deadline = time.monotonic() + WITHIN_S
    while table_bytes(tmp_path) > full / 10 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert full > 3_000_000 and table_bytes(tmp_path) < full / 10
    engine.close()


def table_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.sst") if file.exists())
