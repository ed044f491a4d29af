"""The proof of gate 3 accepts the right order of write, sync and send, and finds each way of getting it wrong."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.client import Acknowledgement, Connection
from tests.broker.history import payload_of
from tests.faultdisk.trace import Event, FileId, Flag, Op, Trace
from tests.gates.order import Proof, prove

PORT, PEER = 1883, 40000
LOG, TABLE, SOCKET = FileId(11), FileId(12), FileId(13)
SIZE = 300


def event(op: Op, file: FileId, path: str, begin: int, end: int, *, offset: int = 0, length: int = 0, result: int = 0) -> Event:
    return Event(op, Flag(0), 1, 1, begin, end, file, offset, length, result, FileId(0), b"", path)


def write(number: int, at: int) -> Event:
    return event(Op.WRITE, LOG, "db/000001.log", at, at + 1, offset=number * SIZE, length=SIZE, result=SIZE)


def sync(begin: int, end: int, covers: int, *, result: int = 0) -> Event:
    made = event(Op.FDATASYNC, LOG, "db/000001.log", begin, end, length=covers * SIZE, result=result)
    return made if result >= 0 else replace(made, flags=Flag.INJECTED)


def send(at: int, length: int = 4) -> Event:
    return event(Op.SEND, SOCKET, f"tcp:{PORT}>{PEER}", at, at + 1, length=length, result=length)


def check(tmp_path: Path, events: list[Event], *, messages: int = 2, acknowledged: tuple[int, ...] = (0, 1)) -> Proof:
    """A log of so many one-message records; after a CONNACK of four bytes a PUBACK for each acknowledged message."""
    log = b""
    for n in range(messages):
        # Bytes before a payload are whatever the broker puts there, here a topic that runs into it.
        data = (b"a/b/7" + payload_of("pub-1", n, 200)).ljust(SIZE - 7, b"-")
        log += b"\0\0\0\0" + len(data).to_bytes(2, "little") + b"\x01" + data
    (tmp_path / str(LOG)).write_bytes(log)
    connection = Connection(PEER, acknowledgements=[Acknowledgement(n, 4 + 4 * at) for at, n in enumerate(acknowledged)])
    return prove(Trace((send(1), *events)), tmp_path, PORT, [("pub-1", connection)])


GOOD = [write(0, 10), write(1, 12), sync(20, 30, 2), send(40, 8)]


def test_a_sync_between_the_last_write_and_the_send_proves_both_messages(tmp_path: Path) -> None:
    """One group commit, one send with two PUBACKs."""
    proof = check(tmp_path, GOOD)
    assert (proof.acknowledgements, proof.unproven, proof.by_recovery, proof.syncs) == (2, [], 0, 1)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([write(0, 10), write(1, 12), sync(20, 50, 2), send(40, 8)], "before the end of its sync"),
        ([write(0, 10), write(1, 22), sync(20, 30, 2), send(40, 8)], "no sync began after its write"),
        ([write(0, 10), write(1, 12), send(40, 8)], "no sync began after its write"),
        ([write(0, 10), write(1, 12), sync(20, 30, 1), send(40, 8)], "covered 300 bytes"),
        ([write(0, 10), write(1, 12), sync(20, 30, 2, result=-errno.EIO), send(40, 8)], "no sync began after its write"),
        ([write(0, 10), write(1, 12), sync(14, 16, 2, result=-errno.EIO), sync(20, 30, 2), send(40, 8)], "had failed before"),
        ([write(0, 10), sync(20, 30, 2), send(40, 8)], "its write was not seen"),
        ([write(0, 10), write(1, 12), sync(20, 30, 2), send(40, 4)], "no send of the broker carried"),
    ],
)
def test_each_wrong_order_is_found(tmp_path: Path, events: list[Event], reason: str) -> None:
    """The planted faults: an early send, a sync too early, none, a short one, a failed one, one after a failure, unseen calls."""
    proof = check(tmp_path, events)
    assert proof.unproven and reason in proof.unproven[-1], proof.unproven


def test_the_second_puback_needs_a_sync_of_its_own(tmp_path: Path) -> None:
    """The first message's sync does not prove a message written after it, and only that one is named."""
    events = [write(0, 10), sync(20, 30, 1), send(40), write(1, 50), send(60), sync(70, 80, 2)]
    assert check(tmp_path, events).unproven == ["message 1 of pub-1: acknowledged 0.000 ms before the end of its sync"]


def test_a_message_in_no_log_is_found(tmp_path: Path) -> None:
    """An acknowledgement for something that was never written anywhere."""
    proof = check(tmp_path, [*GOOD, send(50)], acknowledged=(0, 1, 7))
    assert proof.unproven == ["message 7 of pub-1: it is in no log file"]


def test_after_a_failed_sync_only_a_later_recovery_counts(tmp_path: Path) -> None:
    """What the failed sync dropped is proven by another process's synced table, if the acknowledgement left after that."""
    failed = [write(0, 10), write(1, 12), sync(14, 16, 2, result=-errno.EIO)]
    table = replace(event(Op.FSYNC, TABLE, "db/000007.sst", 20, 30, length=900), pid=2)
    assert check(tmp_path, [*failed, table, sync(32, 34, 2), send(40, 8)]).by_recovery == 2
    assert check(tmp_path, [*failed, replace(table, pid=1), sync(32, 34, 2), send(40, 8)]).unproven
    assert check(tmp_path, [*failed, replace(table, end_ns=45), sync(32, 34, 2), send(40, 8)]).unproven
    assert check(tmp_path, [*failed, replace(table, path="other/000007.sst"), sync(32, 34, 2), send(40, 8)]).unproven
    # Written between the failed sync and the end of the process: never synced, recovered all the same.
    late = [write(0, 10), sync(14, 16, 1, result=-errno.EIO), write(1, 17)]
    assert check(tmp_path, [*late, table, send(40, 8)]).by_recovery == 2
    assert check(tmp_path, [*late, replace(table, pid=1), send(40, 8)]).unproven


def test_after_a_refused_write_the_tables_of_the_same_process_count(tmp_path: Path) -> None:
    """RocksDB leaves the log it could not write to when everything is in tables; a table that was there before proves nothing."""
    refused = replace(event(Op.WRITE, LOG, "db/000001.log", 14, 15, offset=600, length=300, result=-errno.ENOSPC), flags=Flag.INJECTED)
    table = event(Op.FSYNC, TABLE, "db/000007.sst", 20, 30, length=900)
    written = [write(0, 10), write(1, 12)]
    assert check(tmp_path, [*written, refused, table, send(40, 8)]).by_recovery == 2
    assert check(tmp_path, [*written, refused, replace(table, begin_ns=13), send(40, 8)]).unproven
    assert check(tmp_path, [*written, refused, replace(table, end_ns=45), send(40, 8)]).unproven
    assert check(tmp_path, [*written, table, send(40, 8)]).unproven
