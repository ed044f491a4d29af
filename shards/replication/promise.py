"""What a replica has promised: the epoch below which it answers nobody, in a file that is replaced whole.

Durable before anything is answered in that epoch, so a replica that was killed does not go back to an earlier leader.  Beside it the last
register record that was seen, for the day on which the register is lost.  Blocks on the disk: for the thread of the log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgpack
from isal.isal_zlib import crc32

from shards.engine import StoreDamaged
from shards.replication.configuration import NEVER_FORCED, Configuration, ConfigurationUnreadable, Rid
from shards.replication.log_segment import full_or_failed, put_file

PROMISE_VERSION = 2
PROMISE_BYTES_MAX = 64 << 10
PROMISE_FILE = "promise"


@dataclass(frozen=True, slots=True)
class Promise:
    """epoch: the highest one seen.  rid: of this replica, made together with its directory.  configuration: None: none was seen yet.
    incarnation: of the shard, to which the entries belong, if there are any."""

    epoch: int
    rid: Rid
    configuration: Configuration | None
    incarnation: int = NEVER_FORCED


def write_promise(directory: str, promise: Promise) -> None:
    """Durable on return; before that, and when it fails, the former one is.  Raises StoreFull or StoreFailed."""
    configuration = None if promise.configuration is None else promise.configuration.pack()
    row = [promise.epoch, promise.rid, configuration]
    # Of an incarnation before any forcing it is version 1, which older programs read.
    row = [1, *row] if promise.incarnation == NEVER_FORCED else [PROMISE_VERSION, *row, promise.incarnation]
    body = bytes(msgpack.packb(row))
    assert len(body) <= PROMISE_BYTES_MAX, f"a promise of {len(body)} bytes, wanted at most {PROMISE_BYTES_MAX}"
    os.close(put_file(os.path.join(directory, PROMISE_FILE), [crc32(body).to_bytes(4, "little"), body]))


def read_promise(directory: str) -> Promise | None:
    """None: this replica has never promised anything.  Raises StoreDamaged or StoreFailed."""
    path = os.path.join(directory, PROMISE_FILE)
    try:
        with open(path, "rb") as file:
            data = file.read(PROMISE_BYTES_MAX + 5)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise full_or_failed(error, path) from error
    body = data[4:]
    if len(body) > PROMISE_BYTES_MAX or len(data) < 5 or crc32(body) != int.from_bytes(data[:4], "little"):
        raise _damaged(path, "it does not fit its checksum")
    row = msgpack.unpackb(body)
    if row[0] not in (1, PROMISE_VERSION):
        raise _damaged(path, f"version {row[0]!r}; this program reads versions up to {PROMISE_VERSION}")
    _, epoch, rid, configuration, incarnation = (*row, NEVER_FORCED)[:5]
    try:
        return Promise(epoch, Rid(rid), None if configuration is None else Configuration.unpack(configuration), incarnation)
    except ConfigurationUnreadable as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: str, what: str) -> StoreDamaged:
    return StoreDamaged(
        f"the promise of this replica is damaged: {path}: {what}. Without it the replica could follow a leader of the past: move the "
        "directory of the shard away, and the replica is made anew from the others"
    )
