"""What column families are called (shards/family_names.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Rdict

from shards.engine import HOME_FAMILY, StoreFailed, index_of
from shards.engine_rocks import RocksEngine
from shards.family_names import FamilyNames, family_of, name_of


def test_a_family_has_its_number_for_a_name() -> None:
    # Property: docs/formats.md, "Engine of a shard".
    assert [name_of(family) for family in (HOME_FAMILY, 1, 4711, index_of(12))] == ["default", "g1", "g4711", "i12"]
    for name, family in (("default", 0), ("g1", 1), ("g4711", 4711), ("g1.2", 1), ("g12.31", 12), ("i7", -7), ("i7.2", -7)):
        assert family_of("store", name) == family


@pytest.mark.parametrize(
    "name", ["", "g", "1", "h1", "g-1", "g1.", "g.2", "g1.2.3", "gx", "g1.x", "default.2", "G1", "g0", "i", "i-1", "i0", "ix"]
)
def test_what_none_of_ours_is_called_is_refused_with_where_it_is(name: str) -> None:
    # Property: a directory of somebody else's is not taken for a store.
    with pytest.raises(StoreFailed, match="somewhere/0 holds a column family"):
        family_of("somewhere/0", name)


def test_no_name_is_given_twice() -> None:
    # Property: also not one that was there at the opening, whichever it was.
    names = FamilyNames("store", ["default", "g1", "g2.3"])
    assert names.of == {0: "default", 1: "g1", 2: "g2.3"}
    given = []
    for _ in range(4):
        for family in (1, 2):
            assert names.take(family) not in names.of.values()
            given.append(names.give(family))
    assert given == ["g1.2", "g2", "g1.3", "g2.2", "g1.4", "g2.4", "g1.5", "g2.5"]
    assert names.give(7) == "g7" and names.of == {0: "default", 1: "g1.5", 2: "g2.5", 7: "g7"}


def test_a_family_that_is_made_again_is_itself_at_the_next_opening(tmp_path: Path) -> None:
    # Property: what was in it before is gone, what is in it now is there, whatever it is called; and its usual name may come again.
    path = str(tmp_path / "store")
    first = RocksEngine(path)
    for family in (1, 2):
        first.create_family(family)
    first.close()
    called = []
    for times in range(1, 4):
        engine = RocksEngine(path)
        assert engine.families() == [0, 1, 2]
        assert engine.scan(1, b"", b"z", 9) == ([(b"%d" % (times - 1), b"")] if times > 1 else [])
        engine.drop_family(1)
        engine.create_family(1)
        engine.write([(1, b"%d" % times, b"")])
        engine.sync()
        engine.close()
        called.append(sorted(Rdict.list_cf(path)))
    assert called == [["default", "g1.2", "g2"], ["default", "g1", "g2"], ["default", "g1.2", "g2"]]
