"""The judge of a lake sees each kind of fault, and nothing where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shards.messages import encode_message
from tests.lake.files import COLUMNS, LOG, committed_files, lake_rows, orphans
from tests.lake.judge import Kind, Verdict, lake_against_store, rows_against_ledger
from tests.lake.ledger import LakeLedger, lake_payload
from tests.lake.stored import Row, payload_of_body, row_of


def rows_of(client: str, topic: str, numbers: list[int], qos: int = 2, shard: int = 0, since: int = 100) -> list[Row]:
    """One after the other, in the order of the numbers that are given."""
    return [Row(shard, since + at, client, topic, qos, False, lake_payload(client, topic, number)) for at, number in enumerate(numbers)]


def ledger_of(qos: int, sent: int, acknowledged: list[int], again: list[int] | None = None) -> LakeLedger:
    ledger = LakeLedger()
    ledger.enrol("p", ["t"], qos)
    for _ in range(sent):
        ledger.publish("p", "t", qos, 0)
    for number in acknowledged:
        ledger.acknowledged("p", number, 0)
    for number in again or []:
        ledger.sent_again("p", number)
    return ledger


STORE = rows_of("p", "t", [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("lake", "wanted"),
    [
        (STORE, {}),
        (STORE[::-1], {}),
        (STORE[:2] + STORE[3:], {"lost": 1}),
        ([*STORE, STORE[1], STORE[1]], {"duplicate": 2}),
        ([*STORE, replace(STORE[0], offset=999)], {"stranger": 1}),
        ([*STORE[:3], replace(STORE[3], topic="u")], {"changed": 1}),
        ([*STORE[:3], replace(STORE[3], payload=b"")], {"changed": 1}),
        ([*STORE[:3], replace(STORE[3], shard=1)], {"stranger": 1, "lost": 1}),
        ([], {"lost": 4}),
    ],
)
def test_the_lake_has_each_row_of_the_store_once(lake: list[Row], wanted: dict[Kind, int]) -> None:
    """By shard and offset, whatever the order of the files."""
    assert lake_against_store(lake, STORE).counts == wanted


@pytest.mark.parametrize(
    ("qos", "acknowledged", "again", "numbers", "wanted"),
    [
        (2, [0, 1, 2], [], [0, 1, 2], {}),
        (2, [0, 1], [], [0, 1, 2], {}),  # stored, and the acknowledgement was lost on its way
        (2, [0, 1, 2], [], [0, 2], {"lost": 1}),
        (2, [0, 2], [1], [0, 2], {}),  # never acknowledged
        (2, [0, 1, 2], [1], [0, 1, 1, 2], {"duplicate": 1}),
        (1, [0, 1, 2], [1], [0, 1, 1, 2], {}),
        (1, [0, 1, 2], [1], [0, 1, 1, 1, 2], {"duplicate": 1}),
        (1, [0, 1, 2], [], [0, 1, 1, 2], {"duplicate": 1}),
        (1, [0, 1, 2], [1, 2], [0, 1, 2, 1, 2], {}),  # both came again, in order
        (1, [0, 1, 2], [], [0, 2, 1], {"disorder": 1}),
        (2, [0, 1, 2], [], [0, 1, 2, 3], {"stranger": 1}),
        (2, [0, 1, 2], [], [], {"lost": 3}),
    ],
)
def test_rows_are_what_publishers_were_promised(
    qos: int, acknowledged: list[int], again: list[int], numbers: list[int], wanted: dict[Kind, int]
) -> None:
    """Each acknowledged number, once at QoS 2 and not more often than it was sent at QoS 1, in order."""
    ledger = ledger_of(qos, 3, acknowledged, again)
    assert rows_against_ledger(rows_of("p", "t", numbers, qos), ledger).counts == wanted


def test_a_row_that_is_not_what_it_says_is_a_stranger() -> None:
    """Other client, other topic, other QoS, other bytes."""
    good = rows_of("p", "t", [0])[0]
    for wrong in (replace(good, client="q"), replace(good, topic="u"), replace(good, qos=1), replace(good, payload=b"{}")):
        assert rows_against_ledger([wrong], ledger_of(2, 1, [])).counts == {"stranger": 1}


def test_a_client_is_at_home_in_one_shard() -> None:
    """Its messages in two of them have no order."""
    rows = rows_of("p", "t", [0]) + rows_of("p", "t", [1], shard=1)
    assert rows_against_ledger(rows, ledger_of(2, 2, [0, 1])).counts == {"disorder": 1}


def test_a_verdict_names_the_first_of_each_kind() -> None:
    """For people."""
    verdict = Verdict()
    assert verdict.good and str(verdict) == "nothing wrong"
    verdict.add("lost", "this")
    verdict.add("lost", "that")
    assert not verdict.good and str(verdict) == "2 x lost (first: this)"


def test_a_stored_value_is_read_as_it_was_written() -> None:
    """Flags, client, topic; and the payload without its properties, whose length has one byte or two."""
    long = bytes((0x26, 0, 100)) + b"k" * 100 + bytes((0, 100)) + b"v" * 100
    for properties in (b"\0", bytes((len(long) & 127 | 128, len(long) >> 7)) + long):
        value = encode_message(2 | 4, 1000, b"p", b"t/1", properties + b"payload")
        assert row_of(1, 7, value) == Row(1, 7, "p", "t/1", 2, True, b"payload")
    with pytest.raises(ValueError, match="ends within"):
        payload_of_body(b"\x80")


def write(lake: Path, name: str, rows: list[Row]) -> Path:
    lake.mkdir(exist_ok=True)
    path = lake / f"{name}.snappy.parquet"
    columns = [[row.shard, row.offset, row.client, row.topic, row.qos, row.retain, row.payload] for row in rows]
    pq.write_table(pa.table(dict(zip(COLUMNS, map(list, zip(*columns, strict=True)), strict=True))), path)
    return path


def log(lake: Path, name: str, files: list[Path]) -> None:
    (lake / LOG).mkdir(exist_ok=True)
    lines = [json.dumps({"path": f"file://{path}", "size": 1, "action": "add"}) for path in files]
    (lake / LOG / name).write_text("\n".join(["v1", *lines]))


@pytest.mark.slow
def test_only_files_of_committed_batches_count(tmp_path: Path) -> None:
    """Those that the log names: a compact one for all up to it, then one for each batch."""
    lake = tmp_path / "a lake"
    assert lake_rows(lake) == []
    files = [write(lake, f"part-{n}", STORE[n : n + 1]) for n in range(4)]
    log(lake, "0", [files[3]])
    log(lake, "1.compact", [files[0], files[1]])
    assert sorted(committed_files(lake)) == files[:2]
    log(lake, "2", [files[2]])
    (lake / LOG / ".3.crc").write_text("")
    assert lake_rows(lake) == STORE[:3]
    assert orphans(lake) == [files[3]]
