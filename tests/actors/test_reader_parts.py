"""The parts of the reader by themselves: tokens, bounds, whether it is wanted, where it is found, and its way to real shards."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import actors.controller
from actors.asking import NotReached
from actors.controller import ControllerServer
from actors.ports import Gone
from actors.processes import identify
from actors.reader.access import Keys
from actors.reader.counted import Counted
from actors.reader.demand import Address, demand
from actors.reader.keeping import WANTED, is_wanted, let_go, want
from actors.reader.limits import Pace, Slots
from actors.reader.planning import split, wall
from actors.reader.server import ReaderServer
from actors.reader.token import OWN, own_token
from actors.run import Run, boot_id, record_run
from actors.snapshot import Snapshot, write_snapshot
from actors.topology import PIPELINE, Announcement, ListenerInfo, announce
from config.dump import dump_json
from config.load import load
from config.pipeline import Token
from holdfast_spark.client import Client, Endpoint, Unit
from holdfast_spark.protocol import Refused
from shards.generations import GenerationId, GenerationInfo
from shards.layouts.port import LayoutOptions
from shards.steady import STEPS_KEPT, WallRow, WallStep
from shards.store import Counts, Mark
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.actors.places import topology_in
from tests.actors.test_launcher import Cluster

DIGEST = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
"""Of `secret`."""


# ---------------------------------------------------------------------- tokens


def test_the_brokers_own_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    """Many may ask at the same moment; all get the same, and it is the same for ever."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(own_token(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found[0]) >= 40 and len(found) == 8
    assert (tmp_path / OWN).stat().st_mode & 0o777 == 0o600
    assert own_token(tmp_path) == found[0] and [path.name for path in tmp_path.iterdir()] == [OWN]


def test_a_token_file_that_is_empty_opens_nothing(tmp_path: Path) -> None:
    """What a power cut left is replaced; an empty token is nobody's."""
    (tmp_path / OWN).write_text("")
    token = own_token(tmp_path)
    assert token and Keys(token).of("") is None


def test_tokens_of_the_configuration_are_known_by_digest_or_by_file_and_change(tmp_path: Path) -> None:
    """A file that cannot be read opens nothing, and the others go on."""
    file = tmp_path / "lake.token"
    file.write_text("of a file \nsecond line")
    by_digest = Token(name="digest", sha256=DIGEST, filters=("a/#", "$share/g/b"))
    by_file = Token(name="file", token_file=str(file), filters=("c",), write=True)
    keys = Keys("own", [by_digest, by_file, Token(name="none", token_file=str(tmp_path / "none"), filters=("#",))])
    own, digest, of_file = keys.of("own"), keys.of("secret"), keys.of("of a file")
    assert own is not None and own.all and digest is not None and not digest.all and not digest.write
    assert of_file is not None and of_file.write and keys.of("second line") is None and keys.of(DIGEST) is None
    digest.check_filters([b"a/+/x", b"b"])
    with pytest.raises(Refused):
        digest.check_filters([b"a/#", b"c"])
    of_file.check_topics([b"c", b"c"], [0, 1])
    with pytest.raises(Refused):
        of_file.check_topics([b"c", b"d"], [0, 0])
    keys.change([])
    assert keys.of("secret") is None and keys.of("own") is not None


# ---------------------------------------------------------------------- bounds


def test_slots_are_taken_given_and_changed() -> None:
    """Fewer than are taken: those go on, and nobody else begins."""
    slots = Slots(1)
    assert slots.take(0) and not slots.take(0)
    slots.change(2)
    assert slots.take(0)
    slots.change(1)
    slots.give()
    assert not slots.take(0)
    slots.give()
    assert slots.take(0) and slots.taken == 1


def test_who_waits_for_a_slot_gets_it_when_it_is_given() -> None:
    """Not after the time that he would have waited."""
    slots = Slots(1)
    assert slots.take(0)
    taken = threading.Event()

    def wait() -> None:
        if slots.take(60):
            taken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    slots.give()
    assert taken.wait(60)
    waiting.join()


def test_a_pace_lets_bytes_through_at_its_rate_whatever_the_order() -> None:
    """After a pause no more than a quarter of a second's bytes at once, and who changes it is not charged for before."""
    now = [100.0]
    pace = Pace(1000, lambda: now[0])
    assert [pace.wait_for(500) for _ in range(3)] == [0.0, 0.5, 1.0]
    now[0] = 101.5
    assert pace.wait_for(100) == 0.0
    now[0] = 1000.0
    assert pace.wait_for(250) == pytest.approx(0.0) and pace.wait_for(250) == pytest.approx(0.0) and pace.wait_for(1) == pytest.approx(0.25)
    pace.change(0)
    assert pace.wait_for(1 << 40) == 0.0
    pace.change(1000)
    assert pace.wait_for(1000) == 0.0 and pace.wait_for(1) == pytest.approx(1.0)


# ---------------------------------------------------------------------- metadata


def _counted(total: int, until: int | None, *marks: tuple[int, int]) -> Counted:
    info = GenerationInfo(GenerationId(1), "skipstream", LayoutOptions(), 100, until, 0, 0, None)
    return Counted(info, Counts(total, 10 * total), [Mark(position, rows, 10 * rows) for position, rows in marks])


def test_counts_bound_what_lies_below_a_position() -> None:
    """Exact at the ends and at marks; between marks the truth is between the bounds."""
    sealed = _counted(5000, 1100, (400, 1500), (800, 4000))
    for position, low, high in (
        (50, 0, 0),
        (100, 0, 0),
        (101, 0, 1500),
        (400, 1500, 1500),
        (401, 1500, 4000),
        (900, 4000, 5000),
        (1100, 5000, 5000),
    ):
        assert (sealed.atleast(position).rows, sealed.atmost(position).rows) == (low, high)
        assert low <= sealed.about(position).rows <= high
    assert sealed.most_between(401, 800).rows == 2500 and sealed.about_between(100, 1100) == Counts(5000, 50_000)
    current = _counted(5000, None, (400, 1500))
    assert (current.atleast(900).rows, current.atmost(900).rows) == (1500, 5000)


def test_a_generation_is_split_at_marks_into_parts_that_leave_nothing_out() -> None:
    """Of about equal size; without counts there is one part."""
    marks = [(100 + 10 * n, 1000 * n) for n in range(1, 10)]
    counted = _counted(10_000, 200, *marks)
    for rows_per_unit, parts in ((10_000, 1), (5000, 2), (2500, 4), (1000, 10), (1, 10)):
        found = split(counted, 100, 200, rows_per_unit)
        assert len(found) == parts and found[0][0] == 100 and found[-1][1] == 200
        assert all(end == begin for (_, end), (begin, _) in pairwise(found))
    assert split(None, 7, 9, 1) == [(7, 9)] and split(counted, 111, 119, 1) == [(111, 119)]


def test_the_wall_clock_is_told_for_a_range_as_the_shard_knows_it() -> None:
    """From the last step before it on; before the first step there was none, unless steps were forgotten."""
    row = WallRow(0, (WallStep(100, 5), WallStep(200, -7), WallStep(300, 9)))
    assert wall(row, 0, 1000) == [(0, 0), (100, 5), (200, -7), (300, 9)]
    assert wall(row, 200, 300) == [(200, -7)] and wall(row, 250, 301) == [(200, -7), (300, 9)]
    assert wall(WallRow(0), 5, 6) == [(0, 0)]
    many = WallRow(0, tuple(WallStep(n + 1, n) for n in range(50, 50 + STEPS_KEPT)))
    assert wall(many, 0, 1) == [(0, 50)]
    for position in (0, 99, 100, 199, 250, 999):
        (offset_ms,) = [offset for at, offset in wall(row, position, position + 1) if at <= position]
        assert row.wall_ms(position, 0) == offset_ms


# ---------------------------------------------------------------------- whether it is wanted


def test_a_reader_is_wanted_by_the_configuration_or_by_a_file(tmp_path: Path) -> None:
    """never is never, whoever asks."""
    assert is_wanted(tmp_path, "always") and not is_wanted(tmp_path, "on demand")
    want(tmp_path)
    assert is_wanted(tmp_path, "on demand") and not is_wanted(tmp_path, "never")


def test_the_file_goes_when_nobody_was_connected_and_nobody_asked_for_so_long(tmp_path: Path) -> None:
    """Whichever was later counts."""
    want(tmp_path)
    assert not let_go(tmp_path, idle_s=1000.0, idle_stop_s=60.0), "it was asked for just now"
    long_ago = time.time() - 100
    os.utime(tmp_path / WANTED, (long_ago, long_ago))
    assert not let_go(tmp_path, idle_s=30.0, idle_stop_s=60.0) and is_wanted(tmp_path, "on demand")
    assert let_go(tmp_path, idle_s=1000.0, idle_stop_s=60.0) and not is_wanted(tmp_path, "on demand")
    assert not let_go(tmp_path, idle_s=1000.0, idle_stop_s=60.0), "it is gone already"


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SETTINGS_EVERY_S", "READER_EVERY_S", "ROUND_S"):
        monkeypatch.setattr(actors.controller, name, 0.001)


async def _logged(cluster: Cluster, *entries: str) -> None:
    async with asyncio.timeout(60):
        while not set(entries) <= set(cluster.log):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.usefixtures("_impatient")
async def test_the_controller_makes_a_reader_when_it_is_wanted_and_ends_it_when_not(tmp_path: Path) -> None:
    """It gets settings and is watched like the others; nobody waits for it."""
    topology = topology_in(tmp_path)
    cluster = Cluster()
    controller = ControllerServer(topology, 0, cluster)
    await controller.start()
    assert "create reader-0" not in cluster.log
    want(topology.run_dir)
    await _logged(cluster, "begun reader-0", "health reader-0")
    write_snapshot(topology.run_dir, Snapshot(1, "{}"))
    await _logged(cluster, "settings 1 reader-0")
    cluster.refusals["health reader-0"] = [Gone("killed for good")]
    await _logged(cluster, "health reader-0")
    async with asyncio.timeout(60):
        while cluster.log.count("create reader-0") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    (topology.run_dir / WANTED).unlink()
    await _logged(cluster, "stop reader-0", "end reader-0")
    cluster.log.clear()
    await _logged(cluster, "health shard-0")
    assert not any("reader" in each for each in cluster.log)
    await controller.stop()


@pytest.mark.usefixtures("_impatient")
async def test_the_controller_follows_the_setting_and_ends_what_one_before_it_has_made(tmp_path: Path) -> None:
    """always brings it up and never ends it, while the broker runs."""
    topology = topology_in(tmp_path)
    cluster = Cluster()
    cluster.left = "reader-0"
    controller = ControllerServer(topology, 0, cluster)
    await controller.start()
    await _logged(cluster, "stop reader-0", "end reader-0")
    write_snapshot(topology.run_dir, Snapshot(1, dump_json(load(sets=["pipeline.reader=always"], environ={}))))
    await _logged(cluster, "begun reader-0")
    cluster.log.clear()
    want(topology.run_dir)
    write_snapshot(topology.run_dir, Snapshot(2, dump_json(load(sets=["pipeline.reader=never"], environ={}))))
    await _logged(cluster, "end reader-0")
    await controller.stop()


# ---------------------------------------------------------------------- where it is found


def test_whoever_demands_a_reader_without_a_broker_is_told_so(tmp_path: Path) -> None:
    """One sentence, and at once."""
    with pytest.raises(NotReached, match="nothing runs in"):
        demand(tmp_path)


def test_whoever_demands_a_reader_gets_its_address_or_one_sentence(tmp_path: Path) -> None:
    """Asked for by a file; found by its announcement, when it lives and answers."""
    topology = topology_in(tmp_path)
    (topology.run_dir / "topology.json").write_text(topology.to_json())
    launcher = identify(os.getpid())
    assert launcher is not None
    record_run(topology.data_dir, Run(topology.run_dir, launcher, boot_id(), joined=False))
    with pytest.raises(NotReached, match="did not come up within 0 s"):
        demand(topology.data_dir, within=0.0)
    assert (topology.run_dir / WANTED).exists()
    (topology.run_dir / "reader-0.error").write_text("the port is taken")
    with pytest.raises(NotReached, match="within 0 s: the port is taken"):
        demand(topology.data_dir, within=0.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        announce(topology, Announcement("reader", "reader-0", os.getpid(), (ListenerInfo(0, PIPELINE, "0.0.0.0", port, False),)))
        assert demand(topology.data_dir, within=60.0) == ("127.0.0.1", port)
    with pytest.raises(NotReached):
        demand(topology.data_dir, within=0.0)
    write_snapshot(topology.run_dir, Snapshot(1, dump_json(load(sets=["pipeline.reader=never"], environ={}))))
    with pytest.raises(NotReached, match=r'pipeline\.reader = "never"'):
        demand(topology.data_dir, within=0.0)
    assert str(Address("::1", 5)) == "[::1]:5" and str(Address("h", 5)) == "h:5"


# ---------------------------------------------------------------------- with real shards


@pytest.mark.slow
async def test_it_reads_what_clients_publish_through_real_shards_and_comes_back_at_its_port(tmp_path: Path) -> None:
    """Over real links as role reader, restarts of a shard and of itself included; what it appends, subscribers get."""
    sets = ("pipeline.listen=127.0.0.1:0", 'durable_storage.messages.capture=["#"]', "pipeline.idle_stop=1s")
    async with OneLoop(tmp_path, n_shards=2, sets=sets) as broker:
        server = ReaderServer(broker.topology, 0)
        announced = await server.start()
        port = announced.listeners[0].port
        client = Client(Endpoint((("127.0.0.1", port),), own_token(tmp_path)), patience_s=60)
        hand = await Hand.connect(broker.port, "publisher", 5, clean=True, expiry_s=0)

        async def published(*numbers: int) -> None:
            for number in numbers:
                await hand.published(f"a/{number % 3}", str(number), qos=1)

        def everything() -> list[tuple[int, bytes]]:
            cuts = {int(shard): int(found["cut"]) for shard, found in client.cuts()["shards"].items()}
            plan = client.plan(dict.fromkeys(cuts, 0), cuts, ["#"], None, None, 1 << 40)
            units = [Unit(unit["shard"], unit["generation"], unit["from"], unit["to"]) for unit in plan["units"]]
            store = client.hello()["store"]
            return sorted((unit.shard, bytes(block.values)) for unit in units for block in client.scan(store, unit, ["#"]))

        def count() -> int:
            return sum(values.count(b"publisher") for _, values in everything())

        await published(1, 2, 3)
        assert await asyncio.to_thread(count) == 3
        await broker.restart_shard(0)
        await broker.restart_shard(1)
        await published(4, 5)
        assert await asyncio.to_thread(count) == 5
        subscriber = await Hand.connect(broker.port, "s", 5, clean=True, expiry_s=0)
        await subscriber.subscribe("a/#", 1)
        appended = await asyncio.to_thread(client.append, "w", 0, 0, b"\2", [b"publisher"], [b"a/9"], [b"\0nine"])
        assert appended == {"stored": 1, "repeated": False}
        assert (await subscriber.message()).payload == "nine"
        await server.stop()
        assert not list(broker.topology.run_dir.glob("reader-0*.json")) and not list(broker.topology.run_dir.glob("reader-scratch"))
        again = ReaderServer(broker.topology, 0)
        assert (await again.start()).listeners[0].port == port
        assert await asyncio.to_thread(count) == 6
        leases = await asyncio.to_thread(lambda: client.lease("put", name="lake", filters=[], start="latest", ttl_ms=10**6))
        assert set(leases[0]["to"]) == {"0", "1"}
        again.reconfigure(load(sets=[*sets, "pipeline.max_scans=1", "pipeline.max_connections=7"], environ={}))
        assert (await again.health()).ready and again._doors.connections_max == 7 and again._slots.count == 1
        await asyncio.to_thread(client.close)
        await hand.close()
        await subscriber.close()
        await again.stop()


async def test_a_port_that_is_taken_is_one_sentence_and_is_tried_again(tmp_path: Path) -> None:
    """Its host tries for ever, as the other program may go; nothing of the attempt is left."""
    topology = topology_in(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = dump_json(load(sets=[f"pipeline.listen=127.0.0.1:{port}"], environ={}))
        server = ReaderServer(replace(topology, config_json=config), 0)
        with pytest.raises(OSError):
            await server.start()
        assert not (await server.health()).ready
    announced = await server.start()
    assert announced.listeners[0].port == port and (await server.health()).ready
    await server.stop()
