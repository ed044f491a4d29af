"""Logs are looked over beside whoever has the store open."""

from __future__ import annotations

from pathlib import Path

from shards.log_garbage import damage


def test_a_file_that_was_deleted_since_it_was_listed_has_no_damage(tmp_path: Path) -> None:
    """As an owner that has just opened its store deletes the manifest of before; what is there is looked at all the same."""
    (tmp_path / "MANIFEST-000005").symlink_to(tmp_path / "deleted")
    (tmp_path / "000004.log").write_bytes(b"")
    assert damage(str(tmp_path)) == ()
    (tmp_path / "MANIFEST-000006").write_bytes(bytes(6) + b"\x05" + bytes(30))
    (found,) = damage(str(tmp_path))
    assert "MANIFEST-000006" in found and "at byte 0" in found
