"""Units of the store to Parquet files and back: nothing is lost, doubled or changed, and what is reported is what is on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast_spark.client import Unit
from holdfast_spark.digest import MODULUS, digest
from holdfast_spark.parquet_units import HOUR_US, USUAL, Limits, Piece, ReadUnit, Unlike, WrittenFile, read_back, write_units
from tests.holdfast_spark.some_rows import BEGAN_US, SCHEMA, Row, batch_of, row, some_rows

A, B = Unit(0, 1, 0, 1000), Unit(1, 4, 0, 1000)
TINY = Limits(open_files=2, buffered_bytes=20_000, row_group_bytes=10_000, row_group_rows=100, file_raw_bytes=40_000)


def scanning(rows: dict[Unit, list[Row]], at_once: int = 64):  # type: ignore[no-untyped-def]  # a Scan
    def scan(unit: Unit) -> Iterator[pa.RecordBatch]:
        found = rows[unit]
        for first in range(0, len(found), at_once):
            yield batch_of(found[first : first + at_once])

    return scan


def written(rows: dict[Unit, list[Row]], directory: Path, limits: Limits = USUAL) -> tuple[list[WrittenFile], list[ReadUnit]]:
    reports = list(write_units(rows, scanning(rows), directory, SCHEMA, limits))
    return [r for r in reports if isinstance(r, WrittenFile)], [r for r in reports if isinstance(r, ReadUnit)]


def key(each: Row) -> tuple[object, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in each.values())


def found_in(files: list[WrittenFile]) -> Counter[tuple[object, ...]]:
    every: Counter[tuple[object, ...]] = Counter()
    for file in files:
        table = pq.read_table(file.path, partitioning=None)
        assert table.schema.equals(SCHEMA), table.schema
        table = table.set_column(5, "ts", table.column("ts").cast(pa.int64()))
        every.update(key(each) for each in table.to_pylist(maps_as_pydicts=None) for each in [_pairs(each)])
    return every


def _pairs(each: Row) -> Row:
    pairs = each["user_properties"]
    return {**each, "user_properties": None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs]}


@pytest.mark.parametrize("limits", [USUAL, TINY])
@pytest.mark.parametrize("hours", [1, 5])
def test_files_hold_exactly_what_was_scanned(tmp_path: Path, hours: int, limits: Limits) -> None:
    """Row for row, with every column; each file has rows of its hour only; reports add up."""
    rows = {A: some_rows(700, 1, hours=hours), B: some_rows(300, 2, hours=hours, shard=1, generation=4)}
    files, units = written(rows, tmp_path, limits)
    assert found_in(files) == Counter(key(each) for unit in rows.values() for each in unit)
    assert {file.path for file in files} == {str(path) for path in tmp_path.iterdir()}
    for file in files:
        assert all(file.hour * HOUR_US <= us < (file.hour + 1) * HOUR_US for us in (file.ts_first, file.ts_last))
        assert file.rows == sum(piece.rows for piece in file.pieces) and file.bytes == Path(file.path).stat().st_size
    for unit, report in zip(rows, units, strict=True):
        pieces = [piece for file in files for piece in file.pieces if piece.unit == unit]
        assert report == ReadUnit(unit, len(rows[unit]), digest(batch_of(rows[unit])), sum(each["ts"] for each in rows[unit]) % MODULUS)
        assert (sum(p.rows for p in pieces), sum(p.digest for p in pieces) % MODULUS) == (report.rows, report.digest)
        assert sum(p.ts_sum for p in pieces) % MODULUS == report.ts_sum
        assert (min(p.first for p in pieces), max(p.last for p in pieces)) == (0, len(rows[unit]) - 1)


def test_small_units_share_files(tmp_path: Path) -> None:
    """Units of one task and one hour lie in one file, each as one piece."""
    units = {Unit(0, number, 0, 1000): some_rows(20, number, generation=number) for number in range(1, 9)}
    files, _ = written(units, tmp_path)
    assert len(files) == 1 and [piece.unit for piece in files[0].pieces] == list(units)


def test_open_files_and_waiting_rows_are_bounded(tmp_path: Path) -> None:
    """A unit over many hours makes more files than are open at once; large ones are continued in another."""
    files, _ = written({A: some_rows(1000, 1, hours=10)}, tmp_path, TINY)
    assert len({file.hour for file in files}) >= 10 and max(file.raw_bytes for file in files) < 100_000
    same = [row(at, ts=BEGAN_US) for at in range(1000)]
    files, _ = written({A: same}, tmp_path, Limits(file_raw_bytes=20_000))
    assert len(files) > 2 and {file.hour for file in files} == {BEGAN_US // HOUR_US}


def test_a_unit_without_rows_makes_no_file(tmp_path: Path) -> None:
    """It is reported as read all the same."""
    files, units = written({A: []}, tmp_path)
    assert (files, units) == ([], [ReadUnit(A, 0, 0, 0)]) and list(tmp_path.iterdir()) == []


def test_a_scan_that_breaks_leaves_no_report_of_its_files(tmp_path: Path) -> None:
    """What is open when it breaks is deleted; the error goes on."""

    def scan(unit: Unit) -> Iterator[pa.RecordBatch]:
        yield batch_of(some_rows(50, 1))
        raise ConnectionError("no trailer")

    with pytest.raises(ConnectionError):
        list(write_units([A], scan, tmp_path, SCHEMA))
    assert list(tmp_path.iterdir()) == []


def test_every_flipped_byte_of_a_file_is_found(tmp_path: Path) -> None:
    """It cannot be read as it should, or its CRC is another."""
    files, _ = written({A: some_rows(10, 1)}, tmp_path)
    path, pieces = Path(files[0].path), files[0].pieces
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    # The highest bit of a letter in the footer makes of a name what is no text.
    flips = [(at, 0x10) for at in range(0, footer, 41)] + [(at, 0x80) for at in range(footer, len(whole), 3)]
    for at, bit in flips:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        try:
            _, crc, _ = read_back(path, pieces)
        except Unlike:
            continue
        assert crc != files[0].crc
    path.write_bytes(whole)
    assert read_back(path, pieces) == (len(whole), files[0].crc, list(pieces))


def test_rows_of_another_unit_are_refused(tmp_path: Path) -> None:
    """The driver gave (shard, generation, from, to): a file with anything else does not pass."""
    files, _ = written({A: some_rows(40, 1)}, tmp_path)
    piece = files[0].pieces[0]
    for unit in (Unit(1, 1, 0, 1000), Unit(0, 2, 0, 1000), Unit(0, 1, 5, 1000), Unit(0, 1, 0, 30)):
        with pytest.raises(Unlike, match="where shard"):
            read_back(Path(files[0].path), [Piece(unit, piece.rows, piece.first, piece.last, piece.digest, piece.ts_sum)])
    with pytest.raises(Unlike, match="40 rows; 39 were written"):
        read_back(Path(files[0].path), [Piece(A, 39, 0, 38, 0, 0)])
