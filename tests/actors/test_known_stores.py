"""A store that was there and is gone is never begun anew without a word; one that was never there is simply made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from actors.datadir import open_data_directory
from actors.known_stores import StoreMissing, is_empty, known_stores, note_store, require_store
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop


@pytest.mark.parametrize("gone", ["absent", "empty", "a mount point"])
def test_what_was_there_is_required(tmp_path: Path, gone: str) -> None:
    """The sentence names the directory and both ways out; a store that is back is fine again."""
    data_dir, path = tmp_path, tmp_path / "shards" / "1"
    path.mkdir(parents=True)
    (path / "CURRENT").touch()
    note_store(data_dir, path, 1)
    assert known_stores(data_dir) == {1}
    require_store(data_dir, path, 1)
    shutil.rmtree(path)
    if gone != "absent":
        path.mkdir()
    if gone == "a mount point":
        (path / "lost+found").mkdir()
    with pytest.raises(StoreMissing, match="restore") as caught:
        require_store(data_dir, path, 1)
    assert str(path) in str(caught.value) and "accept-loss --shard 1" in str(caught.value) and "\n" not in str(caught.value)
    path.mkdir(exist_ok=True)
    (path / "CURRENT").touch()
    require_store(data_dir, path, 1)


def test_a_crash_in_the_middle_of_the_first_start_leaves_nothing_that_is_required(tmp_path: Path) -> None:
    """site.json is there, the directory of the store is absent, empty, or holds a store that has answered nobody."""
    open_data_directory(tmp_path, n_shards=2, n_shards_new=2).close()
    path = tmp_path / "shards" / "0"
    require_store(tmp_path, path, 0)
    path.mkdir(parents=True)
    note_store(tmp_path, path, 0)
    assert known_stores(tmp_path) == set(), "an engine that keeps nothing on the disk has no store"
    require_store(tmp_path, path, 0)
    (path / "CURRENT").touch()
    require_store(tmp_path, path, 0)
    shutil.rmtree(path)
    require_store(tmp_path, path, 0)


async def test_a_shard_refuses_to_begin_anew_and_is_back_with_its_store(tmp_path: Path) -> None:
    """It is noted before the first client is answered; the disk that was away comes back, and what was stored is there."""
    async with OneLoop(tmp_path) as broker:
        assert known_stores(tmp_path) == {0}
        sub = await Hand.connect(broker.port, "sub", 5)
        await sub.subscribe("t", 1)
        await sub.close()
        await (await Hand.connect(broker.port, "pub", 5)).published("t", "kept")
    store, aside = tmp_path / "shards" / "0", tmp_path / "aside"
    store.rename(aside)
    with pytest.raises(StoreMissing, match="shard 0 is not at"):
        async with OneLoop(tmp_path):
            pass
    assert is_empty(store) and not store.exists()
    aside.rename(store)
    async with OneLoop(tmp_path) as broker:
        sub = await Hand.connect(broker.port, "sub", 5)
        assert sub.present and (await sub.message()).payload == "kept"


async def test_the_engine_in_memory_has_nothing_to_lose(tmp_path: Path) -> None:
    """Every start of it is a first one."""
    for _ in range(2):
        async with OneLoop(tmp_path, sets=("durable_storage.messages.backend=memory",)):
            pass
    assert known_stores(tmp_path) == set()
