"""Looking into a store that somebody else writes (shards/engine_secondary.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rocksdict import Options

from shards.engine import StoreFailed, index_of
from shards.engine_rocks import RocksEngine
from shards.engine_secondary import Outdated, SecondaryEngine

ROOT = Path(__file__).resolve().parents[2]


class _Overtaken(SecondaryEngine):
    """Between its list of families and its opening, the owner drops one."""

    owner: RocksEngine

    @staticmethod
    def _names(path: str, options: Options) -> list[str]:
        names = SecondaryEngine._names(path, options)
        if 7 in _Overtaken.owner.families():
            _Overtaken.owner.drop_family(7)
        return names


def test_a_family_that_is_dropped_while_the_store_is_opened_is_no_fault(tmp_path: Path) -> None:
    # Property: a generation may go at any moment; whoever looks sees the store without it. It broke `storage dump` on a live broker.
    owner = RocksEngine(str(tmp_path / "store"))
    try:
        owner.create_family(6)
        owner.create_family(7)
        _Overtaken.owner = owner
        seen = _Overtaken(str(tmp_path / "store"), str(tmp_path / "scratch"))
        assert 6 in seen.families() and 7 not in seen.families()
        seen.close()
    finally:
        owner.close()


def test_what_is_no_store_is_refused_and_not_tried_for_ever(tmp_path: Path) -> None:
    # Property: only a list that has changed is a reason to try again.
    with pytest.raises(StoreFailed):
        SecondaryEngine(str(tmp_path / "nothing"), str(tmp_path / "scratch"))


_MADE_AGAIN = """
import sys
from shards.engine_rocks import RocksEngine
from shards.engine_secondary import SecondaryEngine

owner = RocksEngine(sys.argv[1])
families = range(1, 31)
for step in (owner.create_family, owner.drop_family, owner.create_family):
    for family in families:
        step(family)
owner.write([(family, b"before", b"") for family in families])
for family in families:
    owner._rdicts[family].flush(True)
seen = SecondaryEngine(sys.argv[1], sys.argv[2])
owner.write([(family, b"after", b"") for family in families])
seen.catch_up()
print([[key for key, _ in seen.scan(family, b"", b"z", 9)] for family in families].count([b"after", b"before"]))
"""


@pytest.mark.slow
def test_whoever_looks_lives_though_families_were_dropped_and_made_again(tmp_path: Path) -> None:
    # Property: an owner that was killed drops the family that it had made for the next generation, and makes it again. Whoever looked then
    # was ended by RocksDB 9.8 at its first `catch_up`, as was the next one: no pipeline could read that shard until it was started anew.
    words = [sys.executable, "-c", _MADE_AGAIN, str(tmp_path / "store"), str(tmp_path / "scratch")]
    looked = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (looked.returncode, looked.stdout) == (0, "30\n"), looked.stderr


@pytest.mark.parametrize("anew", [False, True], ids=["while-it-runs", "by-one-that-begins-anew"])
def test_a_family_that_was_made_again_is_not_shown_empty(tmp_path: Path, anew: bool) -> None:
    # Property: whoever has the first one open is told to open the store anew, and then sees what was written since. Before, the next
    # generation of an owner that was killed in a quiet moment seemed to be there without messages until something was flushed.
    path = str(tmp_path / "store")
    owner = RocksEngine(path)
    for family in (1, 2):
        owner.create_family(family)
    owner.write([(0, b"row", b"1"), (1, b"message", b"1")])
    owner.release_log()
    seen = SecondaryEngine(path, str(tmp_path / "scratch"))
    if anew:
        owner.close()
        owner = RocksEngine(path)
    owner.drop_family(2)
    owner.create_family(2)
    owner.write([(0, b"row", b"2"), (2, b"message", b"2")])
    with pytest.raises(Outdated):
        seen.catch_up()
    seen.close()
    seen = SecondaryEngine(path, str(tmp_path / "scratch"))
    assert seen.scan(2, b"", b"z", 9) == [(b"message", b"2")]
    seen.close()
    owner.close()


def test_what_was_made_or_dropped_alone_is_followed(tmp_path: Path) -> None:
    # Property: it happens at each roll and with each generation whose time is over, and opening anew costs more.
    path = str(tmp_path / "store")
    owner = RocksEngine(path)
    for family in (1, 2):
        owner.create_family(family)
    seen = SecondaryEngine(path, str(tmp_path / "scratch"))
    owner.drop_family(1)
    owner.create_family(3)
    owner.write([(2, b"message", b"1"), (3, b"message", b"2")])
    seen.catch_up()
    assert seen.scan(2, b"", b"z", 9) == [(b"message", b"1")] and 3 not in seen.families()
    seen.close()
    owner.close()


def test_whoever_has_a_generation_open_opens_anew_when_it_gets_an_index(tmp_path: Path) -> None:
    # Property: reads of single devices are as cheap as the owner's from then on; until then they go without.
    path = str(tmp_path / "store")
    owner = RocksEngine(path)
    owner.create_family(1)
    seen = SecondaryEngine(path, str(tmp_path / "scratch"))
    assert not seen.has_family(index_of(1))
    owner.create_family(index_of(1))
    owner.write([(1, b"message", b"1"), (index_of(1), b"page", b"2")])
    with pytest.raises(Outdated):
        seen.catch_up()
    seen.close()
    seen = SecondaryEngine(path, str(tmp_path / "scratch"))
    assert seen.families() == [0, 1] and seen.get(index_of(1), b"page") == b"2"
    owner.write([(index_of(1), b"page", b"3")])
    seen.catch_up()
    assert seen.get(index_of(1), b"page") == b"3"
    seen.close()
    owner.close()
