"""`holdfast backup` and `holdfast restore` of a stopped broker: what is refused, what is found out, what is left when it is broken off."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from actors.backup import taking
from actors.backup.copying import Pace
from actors.backup.manifest import BackupError, find_backup, read_backup
from actors.backup.restoring import Target, restore
from actors.datadir import DirectoryError, hold, open_data_directory, read_site
from actors.known_stores import known_stores
from cli.main import app
from shards.engine_rocks import RocksEngine
from shards.options import StoreOptions
from shards.store import Store
from tests.cli.test_storage import Kept

pytestmark = [pytest.mark.slow]
BRIDGES = """\
[bridges.lake]
filter = "plant/#"
[bridges.lake.jsonl]
path = "out.jsonl"
[bridges.rests]
filter = "#"
paused = true
jsonl.path = "rests.jsonl"
"""


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def told(*words: str | Path) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*words: str | Path) -> str:
    """The one sentence."""
    result = run(*words)
    assert result.exit_code == 1 and result.stdout == "" and result.stderr.count("\n") == 1, result.output
    return result.stderr


def sums(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The data directory of a stopped broker; its store was flushed once and then written again."""
    kept = Kept(tmp_path / "data")
    kept.publish(b"plant/1", b"plant/2")
    kept.engine.close()
    (kept.path / "known-stores").mkdir(mode=0o700)
    (kept.path / "known-stores" / "0").write_text("")
    (kept.path / "pipeline.token").write_text("token\n")
    (kept.path / "api-keys.json").write_text("{}")
    (kept.path / "bridges.toml").write_text(BRIDGES)
    return kept.path


def more(path: Path, *topics: bytes) -> None:
    """Its broker ran meanwhile."""
    again = Kept.__new__(Kept)
    again.path = path
    again.engine = RocksEngine(str(path / "shards" / "0"))
    again.store = Store.open(again.engine, StoreOptions(thresholds=(100, 2)))
    again.last = 10
    again.publish(*topics)
    again.engine.close()


def positions(path: Path) -> list[int]:
    """Of all messages that are stored there."""
    engine = RocksEngine(str(path / "shards" / "0"))
    try:
        store = Store.open(engine, StoreOptions())
        found = [
            position
            for generation, stream in store.streams(b"#", -1)
            for position, _ in store.read(generation, stream, -1, 1 << 62, 1000, 1 << 20, 1 << 20).messages
        ]
        return sorted(found)
    finally:
        engine.close()


# ---------------------------------------------------------------------------------------------------- there and back


def test_what_is_restored_is_what_was_stored(stopped: Path, tmp_path: Path) -> None:
    """As a new incarnation of the same site; nothing of the old directory is needed, or touched."""
    before = sums(stopped)
    said = told("backup", tmp_path / "backups", "--data-dir", stopped)
    assert sums(stopped).keys() - before.keys() <= {"lock"} and all(sums(stopped)[name] == before[name] for name in before)
    assert (said["number"], said["stopped"], said["shards"], said["linked_bytes"]) == (1, True, 1, 0)
    assert run("restore", tmp_path / "backups", "--check").exit_code == 0

    done = told("restore", tmp_path / "backups", "--data-dir", tmp_path / "new")
    site, new = read_site(stopped), read_site(tmp_path / "new")
    assert site is not None and new is not None
    assert (new.site, new.n_shards, new.created, new.incarnation) == (site.site, site.n_shards, site.created, site.incarnation + 1)
    assert done["incarnation"] == 2 and new.quota_auto_bytes == 0
    assert positions(tmp_path / "new") == positions(stopped) == [1, 2]
    assert known_stores(tmp_path / "new") == {0}
    assert (tmp_path / "new" / "pipeline.token").read_text() == "token\n" and (tmp_path / "new" / "api-keys.json").read_text() == "{}"
    assert (tmp_path / "new" / "bridges.toml").read_text() == BRIDGES
    assert not (tmp_path / "new" / "secret").exists() and not (tmp_path / "new" / "restoring").exists()
    assert "store.restored" in (tmp_path / "new" / "logs" / "launcher.log").read_text()
    open_data_directory(tmp_path / "new", n_shards=None, n_shards_new=7).close()


def test_who_restores_is_told_which_bridges_go_on(stopped: Path, tmp_path: Path) -> None:
    """Beside the broker that the backup is of they would carry everything twice; those that are paused carry nothing."""
    told("backup", tmp_path / "backups", "--data-dir", stopped)
    said = run("restore", tmp_path / "backups", "--data-dir", tmp_path / "new")
    assert "bridge lake goes on when it starts" in said.stdout, said.output
    (stopped / "bridges.toml").unlink()
    told("backup", tmp_path / "backups", "--data-dir", stopped)
    again = run("restore", tmp_path / "backups", "--data-dir", tmp_path / "newer")
    assert "bridge" not in again.stdout and not (tmp_path / "newer" / "bridges.toml").exists()


def test_nobody_else_may_read_a_backup(stopped: Path, tmp_path: Path) -> None:
    """It has all messages in it."""
    old = os.umask(0)
    try:
        told("backup", tmp_path / "backups", "--data-dir", stopped)
    finally:
        os.umask(old)
    found = [tmp_path / "backups", *(tmp_path / "backups").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in found if path.is_dir()} == {0}


def test_a_later_backup_copies_only_what_is_new_and_any_of_them_may_go(stopped: Path, tmp_path: Path) -> None:
    """Data files are linked to those of the backup before; each backup is whole by itself."""
    into = tmp_path / "backups"
    first = told("backup", into, "--data-dir", stopped)
    more(stopped, b"plant/3")
    second = told("backup", into, "--data-dir", stopped)
    assert second["number"] == 2 and second["linked_bytes"] > 0
    assert second["linked_bytes"] + second["copied_bytes"] == second["bytes"]
    assert [one["number"] for one in told("backup", into, "--list")] == [1, 2]
    third = told("backup", into, "--data-dir", stopped, "--keep", "1")
    assert third["removed"] == [first["backup"], second["backup"]]
    assert run("restore", into, "--check").exit_code == 0
    told("restore", into, "--data-dir", tmp_path / "new")
    assert positions(tmp_path / "new") == [1, 2, 11]
    # What goes on from there is another store: nothing of it is linked to the files of the one before.
    assert told("backup", into, "--data-dir", tmp_path / "new")["linked_bytes"] == 0


def test_an_older_backup_can_be_named(stopped: Path, tmp_path: Path) -> None:
    """By its own directory."""
    first = told("backup", tmp_path / "backups", "--data-dir", stopped)
    more(stopped, b"plant/3")
    told("backup", tmp_path / "backups", "--data-dir", stopped)
    told("restore", first["backup"], "--data-dir", tmp_path / "new")
    assert positions(tmp_path / "new") == [1, 2]


def test_stores_that_lie_elsewhere_are_restored_there(stopped: Path, tmp_path: Path) -> None:
    """Where the configuration says."""
    told("backup", tmp_path / "backups", "--data-dir", stopped)
    elsewhere = ("--set", f"durable_storage.messages.data_dir={tmp_path / 'disk'}")
    told("restore", tmp_path / "backups", "--data-dir", tmp_path / "new", *elsewhere)
    assert (tmp_path / "disk" / "0" / "CURRENT").exists() and not (tmp_path / "new" / "shards").exists()
    said = told("backup", tmp_path / "backups", "--data-dir", tmp_path / "new", *elsewhere)
    assert said["incarnation"] == 2


def test_only_of_a_stopped_broker_can_it_be_said_that_nothing_came_later(stopped: Path, tmp_path: Path) -> None:
    """Then no session is told of a loss."""
    said = told("backup", tmp_path / "backups", "--data-dir", stopped)
    told("restore", tmp_path / "backups", "--data-dir", tmp_path / "new", "--nothing-since")
    engine = RocksEngine(str(tmp_path / "new" / "shards" / "0"))
    assert Store.open(engine, StoreOptions()).dropped_between(-1, 1 << 61) == []
    engine.close()
    backup = read_backup(Path(said["backup"]))
    rewritten(backup.path, stopped=False)
    assert "what came after it is lost" in refused("restore", backup.path, "--data-dir", tmp_path / "other", "--nothing-since")


# ---------------------------------------------------------------------------------------------------- what is found out


def rewritten(path: Path, **fields: object) -> None:
    """A manifest with a right sum that says something else."""
    from actors.backup import manifest

    found = json.loads((path / "manifest.json").read_text())
    found.pop("sum")
    found |= fields
    (path / "manifest.json").write_text(json.dumps(found | {"sum": manifest._sum_of(found)}))


@pytest.mark.parametrize("damage", ["a byte", "the end", "the file"])
def test_a_backup_that_is_not_as_it_was_copied_is_not_restored(stopped: Path, tmp_path: Path, damage: str) -> None:
    """One changed byte, a file that is cut or missing: it is named, and no broker starts from what was copied till then."""
    backup = Path(told("backup", tmp_path / "backups", "--data-dir", stopped)["backup"])
    file = next((backup / "shards" / "0").glob("*.sst"))
    content = file.read_bytes()
    match damage:
        case "a byte":
            file.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        case "the end":
            file.write_bytes(content[:-1])
        case _:
            file.unlink()
    assert file.name in refused("restore", backup, "--check")
    assert file.name in refused("restore", backup, "--data-dir", tmp_path / "new")
    with pytest.raises(DirectoryError, match="has not ended"):
        open_data_directory(tmp_path / "new", n_shards=None, n_shards_new=1)
    assert not (tmp_path / "new" / "site.json").exists()
    # With a sound one it can be said again.
    told("backup", tmp_path / "sound", "--data-dir", stopped)
    told("restore", tmp_path / "sound", "--data-dir", tmp_path / "new")
    assert positions(tmp_path / "new") == [1, 2]


def test_a_damaged_backup_is_in_the_way_of_no_other(stopped: Path, tmp_path: Path) -> None:
    """The next one is taken beside it, and links nothing to it. It is said of it what is wrong, and no older one is restored instead."""
    into = tmp_path / "backups"
    first, second = (Path(told("backup", into, "--data-dir", stopped)["backup"]) for _ in range(2))
    (second / "manifest.json").write_text("{")
    assert f"{second}/manifest.json is damaged" in refused("restore", into, "--data-dir", tmp_path / "new")
    listed = run("backup", into, "--list")
    assert listed.exit_code == 1 and listed.stdout.startswith(f"{first}: made ") and "manifest.json is damaged" in listed.stderr
    assert told("backup", into, "--data-dir", stopped)["number"] == 3
    told("restore", into, "--data-dir", tmp_path / "new")


def test_a_manifest_that_was_changed_or_cut_is_no_backup(stopped: Path, tmp_path: Path) -> None:
    """Whatever byte it is; and one of a newer format is told from a damaged one."""
    backup = Path(told("backup", tmp_path / "backups", "--data-dir", stopped)["backup"])
    manifest = backup / "manifest.json"
    content = manifest.read_bytes()
    for changed in (content[:-40], content.replace(b'"n_shards": 1', b'"n_shards": 2'), b"", b"[]", b'{"format": 1}'):
        manifest.write_bytes(changed)
        assert "manifest.json is damaged" in refused("restore", backup, "--data-dir", tmp_path / "new")
    manifest.write_bytes(content)
    rewritten(backup, format=2)
    assert "format version 2, and this Holdfast reads up to 1" in refused("restore", backup, "--data-dir", tmp_path / "new")
    manifest.write_bytes(content)
    files = json.loads(content)["files"]
    rewritten(backup, files=[*files, {**files[0], "name": "../../escaped"}])
    assert "manifest.json is damaged" in refused("restore", backup, "--data-dir", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("fields", "words", "sentence"),
    [
        ({}, ("--set", "durable_storage.messages.n_shards=3"), "has n_shards = 1, which cannot be changed"),
        ({}, ("--set", "durable_storage.messages.backend=memory"), "is of the backend 'rocksdb'"),
        (
            {"shards": [{"shard": 0, "sequence": 1, "position": 1, "generations": 1, "layouts": ["of_tomorrow"]}]},
            (),
            "cannot be read by this Holdfast: layout 'of_tomorrow' is not known",
        ),
    ],
)
def test_what_this_broker_could_not_serve_is_not_restored(
    stopped: Path, tmp_path: Path, fields: dict[str, object], words: tuple[str, ...], sentence: str
) -> None:
    """Said before anything is copied."""
    backup = Path(told("backup", tmp_path / "backups", "--data-dir", stopped)["backup"])
    if fields:
        rewritten(backup, **fields)
    assert sentence in refused("restore", backup, "--data-dir", tmp_path / "new", *words)
    assert not (tmp_path / "new").exists()


def test_where_something_is_nothing_is_restored(stopped: Path, tmp_path: Path) -> None:
    """A data directory with a broker's data, one with other files, a directory of stores that is in use; all stay as they are."""
    told("backup", tmp_path / "backups", "--data-dir", stopped)
    before = sums(stopped)
    assert "is not empty, it holds api-keys.json" in refused("restore", tmp_path / "backups", "--data-dir", stopped)
    assert sums(stopped) == before | {"lock": sums(stopped)["lock"]}
    other = tmp_path / "other"
    other.mkdir()
    (other / "photo.jpg").write_text("mine")
    assert "it holds photo.jpg" in refused("restore", tmp_path / "backups", "--data-dir", other)
    words = ("--set", f"durable_storage.messages.data_dir={other}")
    assert "it holds photo.jpg" in refused("restore", tmp_path / "backups", "--data-dir", tmp_path / "new", *words)
    assert (other / "photo.jpg").read_text() == "mine" and not (tmp_path / "new" / "restoring").exists()
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    told("restore", tmp_path / "backups", "--data-dir", tmp_path / "disk")
    with hold(tmp_path / "disk"):
        assert "in use" in refused("restore", tmp_path / "backups", "--data-dir", tmp_path / "disk")


def test_a_restore_that_was_broken_off_is_said_again(stopped: Path, tmp_path: Path) -> None:
    """Killed at any file: the data directory says so to `up`, and the next restore begins anew."""
    backup = find_backup(Path(told("backup", tmp_path / "backups", "--data-dir", stopped)["backup"]))
    target = Target(tmp_path / "new", tmp_path / "new" / "shards")

    class Killed(BaseException):
        pass

    for count in range(1, 4):
        left = count

        def dies(done: int, total: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        with pytest.raises(Killed):
            restore(backup, target, progress=dies)
        assert (tmp_path / "new" / "restoring").exists()
        with pytest.raises(DirectoryError, match="has not ended"):
            open_data_directory(tmp_path / "new", n_shards=None, n_shards_new=1)
    told("restore", backup.path, "--data-dir", tmp_path / "new")
    assert positions(tmp_path / "new") == [1, 2]


# ---------------------------------------------------------------------------------------------------- taking


def test_half_a_backup_is_none_and_the_next_one_removes_it(stopped: Path, tmp_path: Path) -> None:
    """Killed before its manifest, or before it had its name."""
    into = tmp_path / "backups"
    whole = Path(told("backup", into, "--data-dir", stopped)["backup"])
    half = into / "000002-20260102T030405Z.part"
    (half / "shards" / "0").mkdir(parents=True)
    (half / "manifest.json").write_bytes((whole / "manifest.json").read_bytes())
    assert find_backup(into).path == whole
    assert "never ended: it is no backup" in refused("restore", half, "--data-dir", tmp_path / "new")
    assert [one["backup"] for one in told("backup", into, "--list")] == [str(whole)]
    assert told("backup", into, "--data-dir", stopped)["number"] == 2
    assert not half.exists()
    (tmp_path / "only" / half.name).mkdir(parents=True)
    assert "was begun and never ended" in refused("restore", tmp_path / "only", "--data-dir", tmp_path / "new")


def test_what_fails_leaves_what_was_there_before(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up in the middle; another backup is under way; there is too little room from the beginning."""
    into = tmp_path / "backups"
    first = told("backup", into, "--data-dir", stopped)

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(taking, "copy", full)
        assert "the backup was not taken: No space left on device" in refused("backup", into, "--data-dir", stopped)
    with monkeypatch.context() as patched:
        patched.setattr(taking, "free_bytes", lambda _: 17 << 20)
        patched.setattr(taking, "SPARE_BYTES", 17 << 20)
        assert "make room, or name another disk" in refused("backup", into, "--data-dir", stopped)
    with open(into / "lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another backup is being taken" in refused("backup", into, "--data-dir", stopped)
    assert sorted(os.listdir(into)) == sorted(["lock", Path(first["backup"]).name])


def test_a_backup_does_not_lie_in_what_it_is_of(stopped: Path, tmp_path: Path) -> None:
    """Nor is there one of what is no data directory, or of a store that is not there."""
    for inside in (stopped, stopped / "backups", stopped / "shards" / "b"):
        assert "of which the backup is to be" in refused("backup", inside, "--data-dir", stopped)
    assert "it has no site.json" in refused("backup", tmp_path / "b", "--data-dir", tmp_path / "nowhere")
    (stopped / "shards" / "0").rename(tmp_path / "away")
    assert "the store of shard 0 cannot be copied" in refused("backup", tmp_path / "b", "--data-dir", stopped)
    with hold(stopped):
        assert "in use" in refused("backup", tmp_path / "b", "--data-dir", stopped)


def test_a_copy_that_lacks_what_a_shard_had_committed_is_no_backup(stopped: Path, tmp_path: Path) -> None:
    """By its position, or by the number of its last operation."""
    site = read_site(stopped)
    assert site is not None
    for lacks in (taking.Told(99, 0), taking.Told(0, 10**9)):
        source = taking.Source(stopped, site, [stopped / "shards" / "0"], "rocksdb", {0: lacks})
        with pytest.raises(BackupError, match="its files were changed by somebody else"):
            taking.take(source, tmp_path / "b")
    assert os.listdir(tmp_path / "b") == ["lock"]


def test_copying_keeps_to_its_pace() -> None:
    """On average, and without saving up what was not used for longer than a second."""
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    pace = Pace(1000, lambda: now[0], sleep)
    for _ in range(3):
        pace.wait_for(500)
    assert sum(slept) == 1.5
    now[0] += 60
    pace.wait_for(1000)
    pace.wait_for(1000)
    assert sum(slept) == 2.5
    assert run("backup", "somewhere", "--rate", "0").exit_code == 2
    Pace(0, lambda: now[0], sleep).wait_for(1 << 40)
    assert sum(slept) == 2.5
