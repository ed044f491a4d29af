"""Proves from the log of the interposed library that acknowledgements left after their messages were on disk.

For each PUBACK or PUBREC that a client got:

1. where in the bytes of its connection it began is known, so it is known which ``send`` of the broker carried it;
2. its message is in a record of RocksDB's write-ahead log: found by its payload, in the log files that
   the library kept, together with where in the file that record ends;
3. there is a write that put the record's last byte into the file, and a successful sync of that file that began after this
   write had ended and covered that byte; and the sync had ended before the ``send`` began.

A sync that failed drops what it should have written, so a later sync of the same file proves nothing for those bytes. Such a
message counts when its acknowledgement left after another process had opened the store again and had synced a table made
from what it recovered. After a write that was refused for want of space RocksDB does the same within the process: it goes on
in a new log when all that it holds in memory is in synced tables. Both are counted apart (``by_recovery``), and the loss of the
page cache at the end of the gate is the second witness for them.

Knows the text that history.py puts into payloads, and how a send is named by the library. Asks
nothing of the broker.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.broker.client import Connection
from tests.faultdisk.trace import Event, FileId, Flag, Op, Trace
from tests.faultdisk.wal import records

NEVER = 2**63


@dataclass(slots=True)
class Proof:
    acknowledgements: int = 0
    by_recovery: int = 0
    syncs: int = 0
    least_lead_us: int = 0
    """The least time between the end of the sync and the send that it allowed."""
    unproven: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _LogFile:
    """One log file: its writes by where they end, its good syncs by when they began, its failed ones, and what refused it."""

    write_ends: list[int]
    writes: list[Event]
    sync_begins: list[int]
    syncs: list[Event]
    earliest_end: list[Event]
    failures: list[Event]
    store: _Store

    def covered(self, end: int) -> tuple[Event, Event] | str:
        """(write, sync) for the byte before ``end``, the sync being the first to end; or what is wrong."""
        at = bisect_left(self.write_ends, end)
        if at == len(self.write_ends):
            return "its write was not seen"
        write = self.writes[at]
        first = bisect_left(self.sync_begins, write.end_ns)
        if first == len(self.syncs):
            return "no sync began after its write"
        sync = self.earliest_end[first]
        if sync.length < end:
            return f"the sync covered {sync.length} bytes of the file, the record ends at {end}"
        if any(write.begin_ns <= failure.begin_ns < sync.begin_ns for failure in self.failures):
            return "a sync of it had failed before"
        return write, sync

    def recovered(self, end: int, by_ns: int) -> bool:
        """Whether the byte before ``end`` had got into a synced table at this time, in the recovery after a failure."""
        at = bisect_left(self.write_ends, end)
        if at == len(self.write_ends):
            return False
        write = self.writes[at]
        return any(
            write.end_ns <= table.begin_ns
            and table.end_ns <= by_ns
            and any(failure.end_ns <= table.begin_ns and _recovers(write, failure, table) for failure in self.store.failures)
            for table in self.store.tables
        )


def _recovers(write: Event, failure: Event, table: Event) -> bool:
    """After a failed sync the process that saw it syncs no more, the next one does; a refused write it survives."""
    if failure.op is Op.WRITE:
        return write.begin_ns < failure.begin_ns and write.pid == failure.pid
    return write.pid == failure.pid != table.pid


@dataclass(slots=True)
class _Store:
    """One directory of RocksDB: the good syncs of its tables, and the injected failures of its logs."""

    tables: list[Event] = field(default_factory=list)
    failures: list[Event] = field(default_factory=list)


def prove(trace: Trace, kept: Path, port: int, connections: Iterable[tuple[str, Connection]]) -> Proof:
    """Check every acknowledgement of these connections of clients to the broker's ``port``."""
    files = _log_files(trace)
    connections = list(connections)
    places = _places(kept, files, {client_id for client_id, _ in connections})
    sends = _sends(trace, port)
    proof = Proof(syncs=sum(len(each.syncs) for each in files.values()), least_lead_us=NEVER)
    for client_id, connection in connections:
        ends, events = sends.get(connection.local_port, ([], []))
        for acknowledgement in connection.acknowledgements:
            proof.acknowledgements += 1
            name = f"message {acknowledgement.number} of {client_id}"
            at = bisect_right(ends, acknowledgement.begins_at)
            if at == len(ends):
                proof.unproven.append(f"{name}: no send of the broker carried its acknowledgement")
                continue
            _judge(proof, name, events[at], places.get((client_id, acknowledgement.number), []), files)
    return proof


def _judge(proof: Proof, name: str, send: Event, places: list[tuple[FileId, int]], files: dict[FileId, _LogFile]) -> None:
    if not places:
        proof.unproven.append(f"{name}: it is in no log file")
        return
    reasons: list[str] = []
    for file, end in places:
        match files[file].covered(end):
            case (_, sync) if sync.end_ns <= send.begin_ns:
                proof.least_lead_us = min(proof.least_lead_us, (send.begin_ns - sync.end_ns) // 1000)
                return
            case (_, sync):
                reasons.append(f"acknowledged {(sync.end_ns - send.begin_ns) / 1e6:.3f} ms before the end of its sync")
            case str() as reason:
                reasons.append(reason)
    if any(files[file].recovered(end, send.begin_ns) for file, end in places):
        proof.by_recovery += 1
        return
    proof.unproven.append(f"{name}: {reasons[0]}")


def _log_files(trace: Trace) -> dict[FileId, _LogFile]:
    writes: dict[FileId, list[Event]] = defaultdict(list)
    syncs: dict[FileId, list[Event]] = defaultdict(list)
    stores: dict[str, _Store] = defaultdict(_Store)
    for event in trace:
        store = stores[event.path.rpartition("/")[0]]
        if event.path.endswith(".log"):
            if event.op is Op.WRITE and event.ok and event.result:
                writes[event.file].append(event)
            elif event.is_sync:
                syncs[event.file].append(event)
            if not event.ok and Flag.INJECTED in event.flags:
                store.failures.append(event)
        elif event.path.endswith(".sst") and event.is_sync and event.ok:
            store.tables.append(event)
    files: dict[FileId, _LogFile] = {}
    for file, each in writes.items():
        each.sort(key=lambda event: event.offset + event.result)
        good = sorted((event for event in syncs[file] if event.ok), key=lambda event: event.begin_ns)
        earliest: list[Event] = []
        for event in reversed(good):
            earliest.append(event if not earliest or event.end_ns < earliest[-1].end_ns else earliest[-1])
        earliest.reverse()
        files[file] = _LogFile(
            [event.offset + event.result for event in each],
            each,
            [event.begin_ns for event in good],
            good,
            earliest,
            [event for event in syncs[file] if not event.ok],
            stores[each[0].path.rpartition("/")[0]],
        )
    return files


def _places(kept: Path, files: dict[FileId, _LogFile], client_ids: set[str]) -> dict[tuple[str, int], list[tuple[FileId, int]]]:
    """Where each message lies: the file and the end of the record that holds it, in the order in which it was written."""
    # Whatever stands before a payload in its record, the names are known.
    payload = re.compile(rb"(%s) (\d{1,9}) \." % b"|".join(re.escape(each.encode()) for each in client_ids))
    found: dict[tuple[str, int], list[tuple[FileId, int]]] = defaultdict(list)
    for file in files:
        path = kept / str(file)
        if not path.exists():
            continue
        for record in records(path.read_bytes()):
            for match in payload.finditer(record.data):
                places = found[match[1].decode(), int(match[2])]
                if not places or places[-1] != (file, record.end):
                    places.append((file, record.end))
    return found


def _sends(trace: Trace, port: int) -> dict[int, tuple[list[int], list[Event]]]:
    """For each client's port: the broker's sends to it, and how many bytes had been sent after each."""
    found: dict[int, tuple[list[int], list[Event]]] = {}
    sockets: dict[int, FileId] = {}
    for event in sorted(trace.of(Op.SEND), key=lambda each: each.begin_ns):
        if not event.path.startswith(f"tcp:{port}>") or event.result <= 0:
            continue
        peer = int(event.path.rpartition(">")[2])
        if sockets.setdefault(peer, event.file) != event.file:
            raise AssertionError(f"port {peer} was used by two connections; run the gate again")
        ends, events = found.setdefault(peer, ([], []))
        ends.append((ends[-1] if ends else 0) + event.result)
        events.append(event)
    return found
