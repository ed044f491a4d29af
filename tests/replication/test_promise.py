"""What a replica has promised, in its file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from shards.engine import StoreDamaged
from shards.replication.configuration import Rid, first, taken_over
from shards.replication.promise import PROMISE_FILE, Promise, read_promise, write_promise

ME, OTHER = Rid("a/1"), Rid("b/1")
PROMISE = Promise(7, ME, taken_over(first(frozenset((ME, OTHER)), "n"), OTHER, "m"))


def test_the_last_promise_is_read_again(tmp_path: Path) -> None:
    """With and without a register record; none is none."""
    assert read_promise(str(tmp_path)) is None
    write_promise(str(tmp_path), Promise(1, ME, None))
    assert read_promise(str(tmp_path)) == Promise(1, ME, None)
    write_promise(str(tmp_path), PROMISE)
    assert read_promise(str(tmp_path)) == PROMISE
    assert (tmp_path / PROMISE_FILE).read_bytes()[5] == 1, "as programs read it that cannot force leadership"
    write_promise(str(tmp_path), replace(PROMISE, incarnation=2))
    assert read_promise(str(tmp_path)) == replace(PROMISE, incarnation=2)
    assert os.listdir(tmp_path) == [PROMISE_FILE]


def test_a_promise_that_was_cut_or_changed_anywhere_is_refused(tmp_path: Path) -> None:
    """Never read as an older one: the replica could follow a leader of the past."""
    write_promise(str(tmp_path), PROMISE)
    file = tmp_path / PROMISE_FILE
    whole = file.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        for content in (bytes(changed), whole[:at]):
            file.write_bytes(content)
            with pytest.raises(StoreDamaged, match=r"the promise of this replica is damaged: .*promise: .* move the directory"):
                read_promise(str(tmp_path))


def test_a_promise_that_was_half_written_is_not_there(tmp_path: Path) -> None:
    """It is made under another name, and a crash leaves the former one."""
    write_promise(str(tmp_path), Promise(1, ME, None))
    (tmp_path / (PROMISE_FILE + ".part")).write_bytes(b"half")
    assert read_promise(str(tmp_path)) == Promise(1, ME, None)
    write_promise(str(tmp_path), PROMISE)
    assert read_promise(str(tmp_path)) == PROMISE
