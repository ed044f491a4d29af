"""A copy is opened as it is, or put aside and made anew; an install that was broken off is finished or forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.replica.copy import CAME, COMING, DAMAGED, DATA, FORMER, LOG, OLD, SENT, Copy, erase_copy, open_copy, put_aside
from actors.replica.transfer import Gone, Transfer
from shards.committer import Record
from shards.engine import HOME_FAMILY, Engine, StoreFailed
from shards.engine_rocks import RocksEngine
from shards.replication.applying import applied_in, apply
from shards.replication.configuration import Rid
from shards.replication.entry import Entry, Kind
from shards.replication.events import CheckpointMade
from shards.replication.messages import Pull
from shards.salvage import open_store

SITE = "a" * 16


def strictly(path: str) -> Engine:
    return open_store(path, "strict")


def opened(path: Path, site: str = SITE) -> Copy:
    return open_copy(path, 0, 1, site, strictly)


def entry(index: int, key: bytes) -> Entry:
    return Entry(index, 1, Kind.RECORD, Record(index, [(HOME_FAMILY, key, b"value")]).encode())


def filled(path: Path, count: int = 3) -> Copy:
    copy = opened(path)
    copy.log.promise(1)
    for index in range(1, count + 1):
        copy.log.append([entry(index, b"key%d" % index)])
        apply(copy.engine, [entry(index, b"key%d" % index)], index)
    copy.log.sync()
    return copy


def test_it_keeps_its_id_and_what_is_in_it(tmp_path: Path) -> None:
    """Whatever a transfer has left is gone."""
    copy = filled(tmp_path / "0")
    rid = copy.rid
    copy.close()
    for left in (COMING, OLD, f"{SENT}3"):
        (tmp_path / "0" / left).mkdir()
    copy = opened(tmp_path / "0")
    assert copy.rid == rid and copy.log.last == 3 and applied_in(copy.engine).index == 3
    assert sorted(os.listdir(tmp_path / "0")) == [DATA, LOG]
    copy.close()


def test_an_empty_directory_is_another_replica(tmp_path: Path) -> None:
    """A disk that was lost is in sync with nobody by name."""
    first = opened(tmp_path / "0")
    first.close()
    erase_copy(tmp_path / "0")
    assert os.listdir(tmp_path / "0") == []
    second = opened(tmp_path / "0")
    assert second.rid != first.rid
    second.close()


def test_one_that_was_being_made_is_made_anew(tmp_path: Path) -> None:
    """Its promise comes last."""
    (tmp_path / "0" / LOG).mkdir(parents=True)
    (tmp_path / "0" / LOG / "LOCK").touch()
    opened(tmp_path / "0").close()


def test_a_copy_of_before_is_put_aside_whole_and_outlives_what_comes(tmp_path: Path) -> None:
    """What it holds may be nowhere else: neither a new copy nor the end of that one erases it."""
    path = tmp_path / "0"
    copy = filled(path)
    rid = copy.rid
    copy.close()
    put_aside(path, FORMER)
    made = opened(path)
    assert made.rid != rid and made.log.last == 0
    made.close()
    erase_copy(path)
    assert os.listdir(path) == [FORMER]
    former = opened(path / FORMER)
    assert former.rid == rid and former.log.last == 3 and applied_in(former.engine).index == 3
    former.close()


@pytest.mark.parametrize("harm", ["no log", "log damaged", "data damaged", "data gone"])
def test_a_damaged_copy_is_put_aside_and_a_new_one_is_made(tmp_path: Path, harm: str) -> None:
    """Nothing of it counts under its name any more, and nothing of it is erased."""
    path = tmp_path / "0"
    copy = filled(path)
    rid = copy.rid
    copy.log.reset(3, 1)
    copy.close()
    match harm:
        case "no log":
            os.rename(path / LOG, tmp_path / "elsewhere")
        case "log damaged":
            (path / LOG / "promise").write_bytes(b"nonsense")
        case "data damaged":
            (path / DATA / "CURRENT").write_bytes(b"nonsense")
        case "data gone":
            os.rename(path / DATA, tmp_path / "elsewhere")
    copy = opened(path)
    assert copy.rid != rid and copy.log.last == 0 and applied_in(copy.engine).index == 0
    assert (path / DAMAGED).exists() and set(os.listdir(path)) == {DATA, LOG, DAMAGED}
    copy.close()


def test_data_that_is_gone_comes_back_from_a_whole_log(tmp_path: Path) -> None:
    """Everything is in the log, so the replica applies it again."""
    copy = filled(tmp_path / "0")
    rid = copy.rid
    copy.close()
    os.rename(tmp_path / "0" / DATA, tmp_path / "elsewhere")
    copy = opened(tmp_path / "0")
    assert copy.rid == rid and applied_in(copy.engine).index == 0 and copy.log.first == 1
    copy.close()


def test_a_store_that_stood_alone_is_refused(tmp_path: Path) -> None:
    """It has no log, and is not taken for a damaged copy."""
    engine = RocksEngine(str(tmp_path / "0"))
    engine.write([(HOME_FAMILY, b"key", b"value")])
    engine.close()
    with pytest.raises(StoreFailed, match="stood alone"):
        opened(tmp_path / "0")


def test_a_copy_of_another_site_is_refused(tmp_path: Path) -> None:
    """Two sites with one id would both be counted."""
    filled(tmp_path / "0").close()
    with pytest.raises(StoreFailed, match="wrong hand"):
        opened(tmp_path / "0", "b" * 16)


def transferred(copy: Copy, made: CheckpointMade, to: Copy) -> Transfer:
    """Everything of it lies there, and is not complete yet."""
    source, target = Transfer(copy), Transfer(to)
    made = source.make(made.number, made.index, made.epoch)
    target.begin(made.files)
    for place, (_, size) in enumerate(made.files):
        at = 0
        while at < size:
            at = target.write(place, at, source.chunk(Pull(1, made.number, place, at)).data)
    source.erase(made.number)
    with pytest.raises(Gone):
        source.chunk(Pull(1, made.number, 0, 0))
    return target


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["never", "before it is whole", "when it is whole", "between the names"])
def test_a_checkpoint_takes_the_place_of_the_data_whole_or_not_at_all(tmp_path: Path, ends: str) -> None:
    """Wherever the process ends; the id stays."""
    leader, learner = filled(tmp_path / "leader"), filled(tmp_path / "learner", 1)
    path, rid = tmp_path / "learner", learner.rid
    target = transferred(leader, CheckpointMade(1, 3, 1, ()), learner)
    leader.close()
    if ends == "never":
        target.complete()
        assert target.install().index == 3
    elif ends != "before it is whole":
        target.complete()
    if ends == "between the names":
        learner.close()
        os.rename(path / DATA, path / OLD)
    else:
        learner.close()
    learner = opened(path)
    assert learner.rid == rid
    assert applied_in(learner.engine).index == (1 if ends == "before it is whole" else 3)
    assert sorted(os.listdir(path)) == [DATA, LOG] and not (path / CAME).exists()
    learner.close()


def test_ids_name_their_site(tmp_path: Path) -> None:
    """As the register has them."""
    copy = opened(tmp_path / "0")
    assert copy.rid == Rid(f"{SITE}/{copy.rid.partition('/')[2]}") and len(copy.rid) == 33
    copy.close()
