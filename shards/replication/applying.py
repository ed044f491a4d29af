"""Entries into the data engine of a replica, and how far it has come: the applied row.

The ops of a record and the applied row are one write, so whatever of the engine survives a crash says how far it is. It is not synced: the
log is, and is applied again from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from shards.engine import HOME_FAMILY, Engine, Op, StoreFailed
from shards.replication.entry import Entry, Kind
from shards.replication.own import Applied
from shards.rows import META

APPLIED_ROW = META + b"replicated"
APPLIED_VERSION = 1


def apply(engine: Engine, entries: Sequence[Entry], position: int) -> None:
    """In their order. position: the highest one of a record that is applied then. Raises what the engine raises; then nothing is known."""
    ops: list[Op] = []
    for at, entry in enumerate(entries):
        match entry.kind:
            case Kind.RECORD:
                ops += entry.record().ops
            case Kind.MAKE if entry.family() not in engine.families():
                engine.create_family(entry.family())
            case Kind.DROP:
                # What was written to it before must not come after its end.
                _write(engine, ops, entries[at - 1] if at else None, position)
                ops = []
                if entry.family() in engine.families():
                    engine.drop_family(entry.family())
            case _:
                pass
    _write(engine, ops, entries[-1], position)


def applied_in(engine: Engine) -> Applied:
    """What the applied row says; in an engine without one nothing was applied."""
    row = engine.get(HOME_FAMILY, APPLIED_ROW)
    if row is None:
        return Applied()
    fields = msgpack.unpackb(row, use_list=True)
    if fields[0] != APPLIED_VERSION:
        raise StoreFailed(f"applied row of version {fields[0]} found, {APPLIED_VERSION} is what this program reads")
    return Applied(*fields[1:])


def applied_row(index: int, epoch: int, position: int) -> bytes:
    return bytes(msgpack.packb([APPLIED_VERSION, index, epoch, position]))


def _write(engine: Engine, ops: list[Op], last: Entry | None, position: int) -> None:
    if last is not None:
        engine.write([*ops, (HOME_FAMILY, APPLIED_ROW, applied_row(last.index, last.epoch, position))])
