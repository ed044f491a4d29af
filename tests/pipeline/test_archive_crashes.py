"""An archiver that dies at any step, and is started again: the archive is what the store is, once; for Parquet and for Delta."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import delta
from pipeline.archive import Options
from pipeline.archive_compact import compact
from pipeline.archive_verify import verify
from pipeline.archived import ArchiveError
from tests.pipeline.archives import archived, dying, endpoint, keys_in, keys_of, lease, messages, places_in, state_of, store


def check_whole(root: Path, *, as_delta: bool) -> None:
    found = verify(root)
    assert found.problems == [], "every byte and every digest is what was written"
    if as_delta:
        number, files = delta.files_of(root)
        assert number == found.commits and files.keys() == state_of(root).files.keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_an_archiver_that_dies_before_any_step_is_made_good_by_the_next(tmp_path: Path, form: str) -> None:
    """After the crash nothing is acknowledged that is not committed; after the next run the table equals the store."""
    options = Options(format=form)  # type: ignore[arg-type]  # one of the two
    with store(per_generation=30, generations=1) as (broker, published):
        begun = tmp_path / "begun"
        archived(broker, begun, options)
        more = messages(40, seed=99)
        broker.publish(*more)
        broker.roll()
        published += more
        archived(broker, tmp_path / "whole", replace(options, live_after_ms=0))
        places = places_in(tmp_path / "whole")
        assert len(places) == len(published)
        names: list[str] = []
        at = 0
        while True:
            root, mine = tmp_path / str(at), replace(options, lease=f"lease-{at}", live_after_ms=0)
            shutil.copytree(begun, root)
            names = dying(endpoint(broker), root, mine, at)
            if len(names) <= at:
                break
            released = lease(broker, f"lease-{at}") or {}
            owed = {each for each in places if each[1] < released.get(each[0], 0)}
            assert owed <= places_in(root), f"acknowledged and not committed before {names[-1]!r}"
            assert keys_in(root) <= keys_of(published)
            archived(broker, root, mine)
            assert keys_in(root) == keys_of(published), f"after a crash before {names[-1]!r}"
            check_whole(root, as_delta=form == "delta")
            at += 1
        assert {"committing", "syncing the commit", "acknowledging", "after the first file is in its place"} <= set(names)
        assert ("syncing the table" in names) == (form == "delta")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_compaction_that_dies_before_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The archive has the same rows after the crash, and after the next compaction; then it has one file an hour."""
    options = Options(format="delta", live_after_ms=0, round_bytes=1)
    with store(per_generation=20, generation_ms=900_000, generations=2) as (broker, published):
        begun = tmp_path / "begun"
        archived(broker, begun, options)
        assert len(state_of(begun).files) > 2
        at = 0
        while True:
            root = tmp_path / str(at)
            shutil.copytree(begun, root)
            names = dying(endpoint(broker), root, options, at, "compact")
            assert keys_in(root) == keys_of(published)
            compact(root)
            assert keys_in(root) == keys_of(published)
            check_whole(root, as_delta=True)
            hours = [file.hour for file in state_of(root).files.values()]
            assert len(hours) == len(set(hours))
            if len(names) <= at:
                break
            at += 1
        assert at > 5, names


@pytest.mark.slow
def test_a_table_that_is_there_is_always_followed(tmp_path: Path) -> None:
    """Whether another archiver has just made it, or somebody asks for plain files: nothing is acknowledged that it lacks."""
    with store(per_generation=20, generations=2) as (broker, published):

        def step(name: str) -> None:
            if name == "scanning" and not delta.is_table(tmp_path):
                archived(broker, tmp_path, Options(format="delta", lease=None, round_bytes=1), rounds_max=1)

        archived(broker, tmp_path, Options(), step=step)
        check_whole(tmp_path, as_delta=True)
        assert keys_in(tmp_path) == keys_of(published[:40])
        with pytest.raises(ArchiveError, match="is a Delta table already, and plain Parquet is asked for"):
            archived(broker, tmp_path, Options(format="parquet"))
