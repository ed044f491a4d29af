"""Which shards of a data directory have had a store, so that one that is gone is never begun anew, empty, without a word.

    known-stores/N    there was a store of shard N; written, and durable, before anything in that store is acknowledged

A shard without such a file has never answered anybody: at the first start, and after a crash before the file was written, its directory
may be absent or empty. With the file an absent or empty directory is a loss, or a disk that is not mounted: whoever starts refuses,
until it is back or the operator accepts the loss (cli.accept_loss). The file lies in the data directory, since the stores may lie on
another disk.

What is in a store that is there is judged by whoever opens it (shards.salvage).
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.datadir import sync_directory, write_durably

NAME = "known-stores"
_NOT_OF_A_STORE = frozenset(("lost+found", "quarantine"))
"""A file system that was just made has the first; the second holds what was put aside."""


class StoreMissing(Exception):
    """One sentence for the operator."""


def require_store(data_dir: Path, path: Path, shard: int) -> None:
    """Raises StoreMissing when there was a store of this shard, and nothing is at its path."""
    if (data_dir / NAME / str(shard)).exists() and is_empty(path):
        raise StoreMissing(
            f"the store of shard {shard} is not at {path}, where it was: mount or restore this directory, or say "
            f"`holdfast storage accept-loss --shard {shard} --data-dir {data_dir}` to go on without all that was in it"
        )


def note_store(data_dir: Path, path: Path, shard: int) -> None:
    """From now on this shard has a store; engines that keep nothing on the disk have none. To be called before it answers anybody."""
    mark = data_dir / NAME / str(shard)
    if mark.exists() or is_empty(path):
        return
    # Nothing below these was promised before: the names themselves must survive what the mark survives.
    sync_directory(path.parent)
    sync_directory(path.parent.parent)
    mark.parent.mkdir(mode=0o700, exist_ok=True)
    write_durably(mark, f"{path}\n", mode=0o600)
    sync_directory(data_dir)


def known_stores(data_dir: Path) -> set[int]:
    """The shards that have had one."""
    return {int(mark.name) for mark in (data_dir / NAME).glob("*") if mark.name.isdigit()}


def is_empty(path: Path) -> bool:
    try:
        return set(os.listdir(path)) <= _NOT_OF_A_STORE
    except FileNotFoundError:
        return True
