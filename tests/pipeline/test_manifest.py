"""Commits of an archive: one after the other, each whole or not there, and nothing that does not add up is taken."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_spark.client import Unit
from holdfast_spark.parquet_units import Piece
from pipeline.archived import ArchiveFile, Commit, Draft, Lost, ManifestDamaged, Reached, State, applied, decode_state, encode_state, sealed
from pipeline.manifest import DIRECTORY, STATE_EVERY, Manifest

STORE = "site:1"


def file_of(start: int, stop: int, rows: int = 10, *, name: str = "", generation: int = 1, digest: int = 7) -> ArchiveFile:
    piece = Piece(Unit(0, generation, start, stop), rows, start, stop - 1, digest, 0)
    path = f"date=2026-11-21/hour=20/{name or f's0-g{generation}-{start}'}.parquet"
    return ArchiveFile(path, 498_000, rows, 1000, 0xABCD, 5000, 0, 1, (piece,))


def draft_of(start: int, stop: int, *, run: str = "r", rows: int = 10, generation: int = 1) -> Draft:
    """A commit of one file."""
    made = file_of(start, stop, rows, generation=generation, name=f"s0-g{generation}-{start}-{run}")
    return Draft("archive", STORE, run, 1000, (made,), (), (Reached(0, generation, start, stop, rows, 7),))


def committed(root: Path, count: int) -> Manifest:
    root.mkdir(exist_ok=True)
    manifest = Manifest(root)
    state = manifest.load()
    for _ in range(count):
        at = 10 * state.number
        after = manifest.commit(state, draft_of(at, at + 10))
        assert after is not None
        state = after
    return manifest


def test_what_is_committed_is_found_by_another(tmp_path: Path) -> None:
    """Files, how far each generation is, with rows and digests summed up."""
    committed(tmp_path, 3)
    state = Manifest(tmp_path).load()
    assert state.number == 3 and state.rows == 30 and len(state.files) == 3
    assert state.reached == {(0, 1): Reached(0, 1, 0, 30, 30, 21)} and state.boundaries() == {0: {1: 30}}
    assert Manifest(tmp_path).check_all() == state == Manifest(tmp_path).at(3)


def test_a_commit_and_a_state_survive_their_bytes() -> None:
    """Golden: archives are kept for longer than programs."""
    lost = Lost(0, 3, "default", 5, 9, "lease")
    commit = Commit(1, "", replace(draft_of(0, 10), lost=(lost,), filters=("plant/#",)))
    assert Commit.decode(commit.encode(), "x") == commit
    state = applied(State(), commit, commit.encode())
    assert decode_state(encode_state(state), "x") == state
    assert commit.encode() == GOLDEN
    assert state.lost == (lost,) and state.filters == ("plant/#",)


GOLDEN = (
    b'{"add":[{"bytes":1000,"crc":"0000abcd","hour":498000,"path":"date=2026-11-21/hour=20/s0-g1-0-r.parqu'
    b'et","pieces":[[0,1,0,10,10,0,9,"0000000000000007","0000000000000000"]],"raw_bytes":5000,"rows":10,"t'
    b's":[0,1]}],"filters":["plant/#"],"kind":"archive","lost":[[0,3,"default",5,9,"lease"]],"made_ms":100'
    b'0,"number":1,"previous":"","reached":[[0,1,0,10,10,"0000000000000007"]],"remove":[],"run":"r","store'
    b'":"site:1","version":1,"~sha256":"44e70188aef82f6952bad5234c5ddaf74b7054b0b937c4f3f9d62b3652c70b18"}'
    b"\n"
)


def test_of_two_who_commit_at_once_one_is_first(tmp_path: Path) -> None:
    """The other is told, and its file is nowhere."""
    manifest = committed(tmp_path, 1)
    state = manifest.load()
    other = Manifest(tmp_path)
    assert other.commit(other.load(), draft_of(10, 20, run="other")) is not None
    assert manifest.commit(state, draft_of(10, 20, run="mine")) is None
    assert [file for file in manifest.load().files if "mine" in file] == []
    assert sorted(path.name for path in (tmp_path / DIRECTORY).iterdir()) == ["00000001.json", "00000002.json"]


def test_many_who_commit_at_once_make_one_chain(tmp_path: Path) -> None:
    """Every commit is there once, under a number of its own."""
    tmp_path.joinpath(DIRECTORY).mkdir()

    def one(generation: int) -> None:
        manifest = Manifest(tmp_path)
        while manifest.commit(manifest.load(), draft_of(0, 10, generation=generation, run=f"r{generation}")) is None:
            pass

    threads = [threading.Thread(target=one, args=(generation,)) for generation in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = Manifest(tmp_path).check_all()
    assert state.number == 8 and {generation for _, generation in state.reached} == set(range(1, 9))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (draft_of(5, 15), "goes on at 5"),
        (draft_of(15, 25), "goes on at 15"),
        (replace(draft_of(10, 20), reached=(Reached(0, 1, 10, 20, 11, 7),)), "says that it reached 11 rows"),
        (replace(draft_of(10, 20), reached=(Reached(0, 1, 10, 20, 10, 8),)), "says that it reached 10 rows"),
        (replace(draft_of(10, 20), add=()), "its files hold 0 rows"),
        (replace(draft_of(10, 20), store="elsewhere:1"), "is of the site elsewhere"),
        (replace(draft_of(10, 20), filters=("a",)), "is of the filters"),
        (replace(draft_of(10, 20), remove=("date=2026-11-21/hour=20/s0-g1-0-r.parquet",)), "says that it reached"),
        (Draft("compact", STORE, "r", 1, (file_of(0, 10, 9),), ("date=2026-11-21/hour=20/s0-g1-0-r.parquet",)), "rewrites 10 rows"),
        (Draft("compact", STORE, "r", 1, (), ("date=2026-11-21/hour=20/other.parquet",)), "which the archive does not have"),
        (draft_of(0, 10), "has already"),
    ],
)  # fmt: skip
def test_what_does_not_follow_or_add_up_is_not_committed(tmp_path: Path, wrong: Draft, why: str) -> None:
    """Neither holes nor overlaps, nor rows that are in no file."""
    manifest = committed(tmp_path, 1)
    with pytest.raises(ManifestDamaged, match=why):
        manifest.commit(manifest.load(), wrong)
    assert Manifest(tmp_path).load().number == 1


def test_a_compaction_carries_digests_over(tmp_path: Path) -> None:
    """Rows and how far each generation is stay; the old files are remembered as removed."""
    manifest = committed(tmp_path, 2)
    before = manifest.load()
    pieces = tuple(piece for file in before.files.values() for piece in file.pieces)
    made = replace(file_of(0, 10, 20, name="both"), pieces=pieces)
    after = manifest.commit(before, Draft("compact", STORE, "c", 5000, (made,), tuple(before.files)))
    assert after is not None and after.reached == before.reached and after.rows == before.rows
    assert set(after.removed) == set(before.files) and set(after.files) == {made.path}


def test_every_flipped_byte_of_a_commit_is_found(tmp_path: Path) -> None:
    """Each commit has the digest of itself."""
    committed(tmp_path, 2)
    path = tmp_path / DIRECTORY / "00000002.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ManifestDamaged):
            Manifest(tmp_path).load()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ManifestDamaged, match="not whole"):
        Manifest(tmp_path).load()


def test_a_missing_commit_is_found(tmp_path: Path) -> None:
    """In the middle, and when the files are those of another archive."""
    committed(tmp_path / "a", 3)
    committed(tmp_path / "b", 2)
    (tmp_path / "a" / DIRECTORY / "00000002.json").rename(tmp_path / "kept")
    with pytest.raises(ManifestDamaged, match="commit 2 is missing"):
        Manifest(tmp_path / "a").load()
    foreign = replace(draft_of(10, 20), made_ms=5)
    (tmp_path / "a" / DIRECTORY / "00000002.json").write_bytes(Commit(2, "another", foreign).encode())
    with pytest.raises(ManifestDamaged, match="does not follow commit 1"):
        Manifest(tmp_path / "a").load()


def test_a_newer_version_is_refused_with_one_sentence(tmp_path: Path) -> None:
    """And never guessed at."""
    committed(tmp_path, 1)
    path = tmp_path / DIRECTORY / "00000001.json"
    content = json.loads(path.read_bytes())
    del content["~sha256"]
    path.write_bytes(sealed({**content, "version": 2}))
    with pytest.raises(ManifestDamaged, match="is of version 2, and this program reads version 1"):
        Manifest(tmp_path).load()


@pytest.mark.slow
def test_states_spare_reading_all_commits_and_say_the_same(tmp_path: Path) -> None:
    """With the state, without it, and with a damaged one."""
    committed(tmp_path, STATE_EVERY + 2)
    directory = tmp_path / DIRECTORY
    state = Manifest(tmp_path).load()
    assert state == Manifest(tmp_path).check_all() and state.number == STATE_EVERY + 2
    (directory / "00000001.json").rename(tmp_path / "first")
    assert Manifest(tmp_path).load() == state, "what the state says is not read again"
    (tmp_path / "first").rename(directory / "00000001.json")
    (summed,) = directory.glob("state-*.json")
    summed.write_bytes(summed.read_bytes().replace(b'"rows":10', b'"rows":11', 1))
    assert Manifest(tmp_path).load() == state, "a state that was changed is passed over"
    with pytest.raises(ManifestDamaged, match="is not what the commits up to it come to"):
        Manifest(tmp_path).check_all()
