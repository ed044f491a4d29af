"""Looking into a store that somebody else writes (shards/engine_secondary.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options

from shards.engine import StoreFailed
from shards.engine_rocks import RocksEngine
from shards.engine_secondary import SecondaryEngine


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
