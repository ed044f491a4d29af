"""Alarms lie in the run directory until they are cleared (actors/alarms.py)."""

from __future__ import annotations

from pathlib import Path

from actors.alarms import Alarm, clear_alarm, raise_alarm, read_alarms


def test_an_alarm_is_there_until_it_is_cleared(tmp_path: Path) -> None:
    """One for each process and kind; raised again it has the newer cause; clearing what is not there is nothing."""
    for alarm in (
        Alarm("shard-1", "clock", "old"),
        Alarm("shard-0", "clock", "a"),
        Alarm("shard-1", "clock", "b"),
        Alarm("shard-1", "x", "c"),
    ):
        raise_alarm(tmp_path, alarm)
    clear_alarm(tmp_path, "shard-0", "x")
    assert read_alarms(tmp_path) == [Alarm("shard-0", "clock", "a"), Alarm("shard-1", "clock", "b"), Alarm("shard-1", "x", "c")]
    clear_alarm(tmp_path, "shard-1", "clock")
    assert read_alarms(tmp_path) == [Alarm("shard-0", "clock", "a"), Alarm("shard-1", "x", "c")]


def test_what_cannot_be_read_hides_no_other_alarm(tmp_path: Path) -> None:
    """A file of another version, or half of one."""
    (tmp_path / "shard-0.clock.alarm").write_text("{")
    raise_alarm(tmp_path, Alarm("shard-1", "clock", "b"))
    assert read_alarms(tmp_path) == [Alarm("shard-1", "clock", "b")]
