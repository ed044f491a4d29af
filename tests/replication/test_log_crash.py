"""What a crash leaves of a log, and what was changed in it since: cut at every byte, every byte flipped, zeros at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shards.engine import StoreDamaged
from shards.replication.entry import Entry
from shards.replication.log import LogLimits, ReplicatedLog
from shards.replication.log_format import BATCH_HEAD_BYTES, END_BYTES, SEGMENT_HEAD_BYTES
from tests.replication.logs import again, copied, entry, found, held, make, put, quick, run, segments

STEPS: list[Callable[[ReplicatedLog], None]] = [
    lambda log: put(log, [entry(1)]),
    lambda log: put(log, [entry(2, payload=b""), entry(3, payload=bytes(40)), entry(4)]),
    lambda log: put(log, run(3, 5, 2)),
    lambda log: put(log, run(6, 6, 2)),
    lambda log: put(log, run(1, 2, 3)),
]
"""All in one segment, a truncation with its replacement and one of everything among them."""


@pytest.fixture
def shm() -> Iterator[Path]:
    with quick() as path:
        yield path


def history(path: Path) -> list[tuple[int, list[Entry]]]:
    """How long the file is after each step, and what the log then holds."""
    log = make(path, LogLimits())
    states = [(SEGMENT_HEAD_BYTES, held(log))]
    for step in STEPS:
        step(log)
        states.append((segments(path)[-1].stat().st_size, held(log)))
    log.close()
    return states


@pytest.mark.slow
def test_a_log_cut_at_any_byte_is_as_after_one_of_its_steps(shm: Path) -> None:
    """The last that was written whole: never without both what was replaced and what replaces it, and nothing synced missing."""
    states = history(shm / "log")
    whole = segments(shm / "log")[0].read_bytes()
    assert len(whole) == states[-1][0]
    copy = copied(shm / "log", shm / "copy")
    for size in range(SEGMENT_HEAD_BYTES, len(whole) + 1):
        segments(copy)[0].write_bytes(whole[:size])
        there, wanted = max(state for state in states if state[0] <= size)
        log = again(copy, LogLimits())
        assert (held(log), log.cut_bytes) == (wanted, size - there), size
        # What is cut is gone, and the log goes on from there.
        put(log, [entry(log.last + 1, 9)])
        after = held(log)
        log.close()
        assert found(copy)[2] == after == [*wanted, entry(len(wanted) + 1, 9)], size


@pytest.mark.slow
def test_a_log_whose_last_pages_were_never_written_is_cut_there(shm: Path) -> None:
    """A file system may make a file longer before it has what is in it: zeros up to the end, from any byte on."""
    states = history(shm / "log")
    whole = segments(shm / "log")[0].read_bytes()
    copy = copied(shm / "log", shm / "copy")
    last_step = states[-2][0]
    for size in range(last_step, len(whole) - END_BYTES + 1):
        segments(copy)[0].write_bytes(whole[:size] + bytes(len(whole) - size))
        if last_step < size < last_step + BATCH_HEAD_BYTES:
            continue  # no file system writes a part of a sector; a head that is half there is damage
        assert found(copy)[2] == states[-2][1], size


@pytest.mark.slow
def test_a_bit_that_was_flipped_anywhere_is_found(shm: Path) -> None:
    """Also in the last batch and in lengths: nothing that may have been acknowledged is cut off. File, offset and cure are named."""
    history(shm / "log")
    whole = segments(shm / "log")[0].read_bytes()
    copy = copied(shm / "log", shm / "copy")
    file = segments(copy)[0]
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        file.write_bytes(changed)
        with pytest.raises(StoreDamaged, match=re.escape(str(file)) + r", offset (\d+): .* move the directory of the shard away") as damage:
            again(copy)
        named = re.search(r"offset (\d+)", str(damage.value))
        assert named is not None
        assert int(named[1]) <= at, at
        assert file.read_bytes() == changed, "what is damaged is left as it is"


def test_a_segment_that_is_missing_shortened_or_exchanged_is_found(tmp_path: Path) -> None:
    """Of those before the last: nothing in them is ever torn."""
    log = make(tmp_path / "log")
    for index in range(1, 31):
        put(log, [entry(index)])
    log.close()
    count = len(segments(tmp_path / "log"))
    assert count >= 4

    def refused(spoil: Callable[[list[Path]], object], story: str) -> None:
        copy = copied(tmp_path / "log", tmp_path / "copy")
        spoil(segments(copy))
        with pytest.raises(StoreDamaged, match=story):
            again(copy)

    refused(lambda files: files[1].unlink(), "segment 3 follows segment 1: what is between them is missing")
    story = r"offset \d+: batch \d+ is wanted here, batch \d+ is the next, and 29 were on disk"
    refused(lambda files: files[1].write_bytes(files[1].read_bytes()[:-1]), story)
    refused(lambda files: files[1].write_bytes(files[1].read_bytes()[:SEGMENT_HEAD_BYTES]), story)
    refused(lambda files: files[1].write_bytes(files[2].read_bytes()), "it is segment 3, by its name it is 2")
    head = SEGMENT_HEAD_BYTES
    refused(
        lambda files: files[1].write_bytes(files[1].read_bytes()[:head] + files[2].read_bytes()[head:]),
        "the head of the batch does not fit",
    )
    refused(lambda files: files[-1].write_bytes(b""), "the file has 0 bytes")


def test_damage_under_a_reader_is_one_sentence(tmp_path: Path) -> None:
    """What is read for another replica is checked again: a bad block does not spread."""
    log = make(tmp_path / "log")
    put(log, run(1, 3))
    file = segments(tmp_path / "log")[0]
    with file.open("r+b") as damaged:
        damaged.seek(SEGMENT_HEAD_BYTES + BATCH_HEAD_BYTES + 30)
        damaged.write(b"\0")
    with pytest.raises(StoreDamaged, match=r"0001\.seg, offset 108: entry 1 does not fit its checksum"):
        log.read(1, 3, 1 << 20)
    with file.open("r+b") as short:
        short.truncate(SEGMENT_HEAD_BYTES + BATCH_HEAD_BYTES + 50)
    with pytest.raises(StoreDamaged, match="the file ends here"):
        log.read(2, 1, 1 << 20)
