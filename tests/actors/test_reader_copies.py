"""A reader of one of several sites knows whether its site has a copy of a shard, and says who has one."""

from __future__ import annotations

import json
from pathlib import Path

from actors.reader.copies import CopiesHere

A, B, C = "a" * 16, "b" * 16, "c" * 16


def says(run_dir: Path, shard: int, rid: str, *replicas: str) -> None:
    (run_dir / f"replica-{shard}.json").write_text(json.dumps({"rid": rid, "replicas": replicas}), encoding="utf-8")


def test_a_site_without_a_copy_names_those_that_have_one(tmp_path: Path) -> None:
    """One that was made anew beside one that is counted on is none yet."""
    copies = CopiesHere(tmp_path, A)
    says(tmp_path, 0, f"{A}/1", f"{B}/2", f"{A}/1")
    assert copies.missing(0) == ""
    says(tmp_path, 1, f"{A}/1", f"{C}/3", f"{B}/2")
    counted = "AAAAAAAAAAAAAAAA has no copy of shard 1 that is counted on"
    assert copies.missing(1) == f"site {counted}: sites {B.upper()}, {C.upper()} have one, and their readers read it"
    says(tmp_path, 2, f"{A}/new", f"{A}/1", f"{B}/2")
    assert copies.missing(2).endswith(f"shard 2 that is counted on: site {B.upper()} has one, and its reader reads it")
    says(tmp_path, 3, f"{A}/new", f"{A}/1")
    assert copies.missing(3).endswith("no other site has one")


def test_what_nobody_knows_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """A shard process that has not said anything yet, or that has not read the register: the files speak for themselves."""
    copies = CopiesHere(tmp_path, A)
    assert copies.missing(0) == ""
    (tmp_path / "replica-1.json").write_text("{", encoding="utf-8")
    assert copies.missing(1) == ""
    says(tmp_path, 2, f"{A}/1")
    assert copies.missing(2) == ""
