"""Parquet files and their spool: nothing twice, nothing lost, whatever a crash leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bridge.port import Accepted, Misconfigured, Outcome, Unavailable
from bridge.targets.parquet import ParquetTarget
from bridge.targets.spool import MAGIC, Broken, Head, Spool
from config.bridge_kinds import Parquet
from tests.bridge.batches import batch, context
from tests.bridge.peers import ParquetPeer, what

FRAMES = [(Head("e", number, 2, number, 5), bytes([number]) * 100) for number in range(1, 6)]


def made(path: Path) -> Spool:
    spool = Spool(path)
    for head, data in FRAMES:
        spool.append(head, data)
    return spool


def test_a_spool_has_what_was_appended_wherever_it_was_torn(tmp_path: Path) -> None:
    """Cut anywhere, it holds the frames that are whole, in order, and takes new ones behind them."""
    spool = made(tmp_path / "s")
    spool.close()
    whole = (tmp_path / "s").read_bytes()
    ends = [len(MAGIC)]
    for head, data in FRAMES:
        ends.append(ends[-1] + 8 + len(json.dumps(head, separators=(",", ":"))) + 1 + len(data))
    assert ends[-1] == len(whole)
    for cut in range(0, len(whole) + 1, 7):
        torn = tmp_path / "torn"
        torn.write_bytes(whole[:cut])
        opened = Spool(torn)
        count = sum(end <= cut for end in ends[1:])
        assert list(opened.frames()) == FRAMES[:count]
        assert opened.rows == 2 * count and (opened.last is None) == (count == 0)
        opened.append(*FRAMES[0])
        opened.close()
        again = Spool(torn)
        assert list(again.frames()) == [*FRAMES[:count], FRAMES[0]]
        again.close()


def test_a_spool_that_began_again_knows_what_was_accepted(tmp_path: Path) -> None:
    """And has no rows."""
    spool = made(tmp_path / "s")
    spool.begin_again(77)
    assert spool.rows == 0 and spool.last == Head("e", 5, 0, 0, 77)
    spool.append(*FRAMES[0])
    spool.close()
    again = Spool(tmp_path / "s")
    assert [head.rows for head, _ in again.frames()] == [0, 2] and again.oldest_ms == 5
    again.close()


def test_a_file_that_is_no_spool_is_left_alone(tmp_path: Path) -> None:
    """It may be somebody's."""
    (tmp_path / "s").write_bytes(b"dear diary, today I")
    with pytest.raises(Broken):
        Spool(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == b"dear diary, today I"


needs_arrow = pytest.mark.needs("arrow")


@pytest.mark.slow
@needs_arrow
async def test_a_crash_after_the_file_was_renamed_makes_no_second_one(tmp_path: Path) -> None:
    """The spool still has its rows, and is begun again when it is opened, before anything is put behind them."""
    peer = ParquetPeer(tmp_path)
    await peer.start()
    target = peer.target()
    await target.open()
    await target.deliver(batch(range(1, 31)))
    await target.close()
    spool = next(peer.path.glob(".holdfast-*.spool"))
    before = spool.read_bytes()
    assert await peer.got() == what(batch(range(1, 31)))
    spool.write_bytes(before)
    again = peer.target()
    assert await again.open() == Accepted("made-1", 30)
    await again.deliver(batch(range(31, 51)))
    await again.close()
    assert await peer.got() == what(batch(range(1, 51)))
    assert len(list(peer.path.glob("*.parquet"))) == 2


@pytest.mark.slow
@needs_arrow
async def test_a_file_is_finished_when_it_is_full_or_old(tmp_path: Path) -> None:
    """Also while nothing comes; before, nobody sees anything of it."""
    peer = ParquetPeer(tmp_path)
    await peer.start()
    target = peer.target(file_age_max="2s")
    await target.open()
    assert await target.deliver(batch(range(1, 31))) == Outcome(30)
    assert not list(peer.path.glob("*.parquet"))
    assert await target.deliver(batch(range(31, 61))) == Outcome(30)
    assert len(list(peer.path.glob("*.parquet"))) == 1
    await target.deliver(batch(range(61, 66)))
    async with asyncio.timeout(20):
        while len(list(peer.path.glob("*.parquet"))) < 2:  # noqa: ASYNC110  # a directory tells nobody
            await asyncio.sleep(0.05)
    await target.close()
    assert peer._read() == what(batch(range(1, 66)))
    assert not list(peer.path.glob("_*"))


@pytest.mark.slow
@needs_arrow
async def test_two_processes_do_not_write_the_same_files(tmp_path: Path) -> None:
    """The second is told so until the first has closed them."""
    peer = ParquetPeer(tmp_path)
    await peer.start()
    first, second = peer.target(), peer.target()
    await first.open()
    with pytest.raises(Unavailable, match="another process"):
        await second.open()
    await second.close()
    await first.close()
    third = peer.target()
    assert await third.open() is None
    await third.close()


@pytest.mark.slow
@needs_arrow
async def test_what_another_number_of_lanes_left_becomes_a_file(tmp_path: Path) -> None:
    """It was accepted, so it has to be seen."""
    settings = Parquet(path="out")
    for lane in range(2):
        target = ParquetTarget(settings, context(tmp_path, lane, 2))
        await target.open()
        await target.deliver(batch([lane + 1]))
        await target.close()
    alone = ParquetTarget(settings, context(tmp_path))
    assert await alone.open() is None
    await alone.close()
    peer = ParquetPeer(tmp_path)
    await peer.start()
    assert sorted(peer._read()) == what(batch([1, 2]))
    assert len(list(peer.path.glob(".holdfast-*.spool"))) == 1


@needs_arrow
async def test_a_path_that_is_a_file_is_somebodys_to_mend(tmp_path: Path) -> None:
    """It is neither written over nor read."""
    (tmp_path / "out").write_text("here already")
    target = ParquetTarget(Parquet(path="out"), context(tmp_path))
    with pytest.raises(Misconfigured):
        await target.open()
    await target.close()
