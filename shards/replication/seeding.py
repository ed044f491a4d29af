"""A cluster that begins with what a backup has: one copy is full, and the others are made from it.

The full one is known by its id, which is made when the backup is put there, and by its applied row, which says that one entry of epoch 1 is
applied: so its log begins behind that entry, and who wants what came before gets a checkpoint. The first record of the shard has this copy
alone, as if it had led epoch 1; the others are its target, and are added one after the other as when sites join.

Always holds: where one copy is full no empty one is ever in sync before it has what the full one has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from shards.engine import HOME_FAMILY, Op
from shards.replication.applying import APPLIED_ROW, applied_row
from shards.replication.configuration import Configuration, Rid, rid_of

SEED: Final = "seed-"
_INDEX: Final = 1
_EPOCH: Final = 1


def seed_rid(site: str, copy: str) -> Rid:
    """copy: as of any other copy."""
    return rid_of(site, f"{SEED}{copy}")


def is_seed(rid: Rid) -> bool:
    return rid.partition("/")[2].startswith(SEED)


def seed_op(position: int) -> Op:
    """Into the data of such a copy. position: the highest one of its records."""
    return HOME_FAMILY, APPLIED_ROW, applied_row(_INDEX, _EPOCH, position)


def first_of_seed(seed: Rid, sites: Collection[str], nonce: str) -> Configuration:
    """sites: on which copies shall be."""
    return Configuration(1, _EPOCH, seed, frozenset((seed,)), frozenset((seed,)), target=tuple(sorted(sites)), nonce=nonce)
