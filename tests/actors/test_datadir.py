"""The data directory: one holder, one site for ever, and cleared of what a killed run left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from actors.datadir import FORMAT_VERSION_SITES, DataDirectory, DirectoryError, open_data_directory
from actors.processes import DATA_MARK, ProcessId, alive, descendants, end, identify, marked, send
from actors.run import Run, boot_id, read_run, record_run


def opened(path: Path, n_shards: int | None = None) -> DataDirectory:
    return open_data_directory(path, n_shards=n_shards, n_shards_new=2, lock_within=0.0)


def sleeper(**marks: str) -> subprocess.Popen[bytes]:
    """A process of ours that does nothing and bears marks."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(600)"], env={**os.environ, **marks}, stdout=subprocess.PIPE
    )


def started(process: subprocess.Popen[bytes]) -> ProcessId:
    assert process.stdout is not None
    process.stdout.readline()
    found = identify(process.pid)
    assert found is not None
    return found


def test_a_site_is_given_once_and_for_ever(tmp_path: Path) -> None:
    """The second start finds the site, the secret and the number of shards of the first."""
    first = opened(tmp_path / "d")
    assert first.new and len(first.site.site) == 16 and int(first.site.site, 16) >= 0 and first.site.n_shards == 2
    first.close()
    second = open_data_directory(tmp_path / "d", n_shards=None, n_shards_new=16)
    assert not second.new and second.site == first.site and second.secret == first.secret
    second.close()


def test_two_directories_are_two_sites(tmp_path: Path) -> None:
    """Neither the site id nor the secret is the same anywhere else."""
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    assert one.site.site != other.site.site and one.secret != other.secret
    one.close()
    other.close()


def test_a_directory_that_others_could_enter_is_closed_to_them(tmp_path: Path) -> None:
    """One of an older version, or one that somebody made beforehand."""
    (tmp_path / "d").mkdir(mode=0o755)
    opened(tmp_path / "d").close()
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "d" / "site.json").stat().st_mode & 0o077 == 0


def test_secret_and_directory_are_for_their_owner_only(tmp_path: Path) -> None:
    """Whoever may read the secret may speak to shards."""
    directory = opened(tmp_path / "d")
    assert stat.S_IMODE((tmp_path / "d" / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    run_dir = directory.begin_run(joined=False)
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    directory.end_run()
    directory.close()


def test_a_directory_in_use_is_refused_with_the_holders_pid(tmp_path: Path) -> None:
    """One broker at a time; the sentence says whom to look for, and the directory is free again once that one is gone."""
    holder = opened(tmp_path)
    with pytest.raises(DirectoryError, match=f"in use by the broker with pid {os.getpid()}$"):
        opened(tmp_path)
    holder.close()
    opened(tmp_path).close()


def test_a_directory_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """An older program must not touch what it does not understand."""
    opened(tmp_path).close()
    path = tmp_path / "site.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": FORMAT_VERSION_SITES + 1}))
    with pytest.raises(DirectoryError, match=f"format version {FORMAT_VERSION_SITES + 1}"):
        opened(tmp_path)
    assert json.loads(path.read_text())["format"] == FORMAT_VERSION_SITES + 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": "x"}'])
def test_a_damaged_site_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    """A new site id over old stores would be worse than not starting."""
    (tmp_path / "site.json").write_text(text)
    with pytest.raises(DirectoryError, match="damaged"):
        opened(tmp_path)
    assert (tmp_path / "site.json").read_text() == text


def test_the_number_of_shards_cannot_be_changed(tmp_path: Path) -> None:
    """Asking for another number is refused; asking for the same, or for auto, is fine."""
    opened(tmp_path, 3).close()
    with pytest.raises(DirectoryError, match="n_shards = 3"):
        opened(tmp_path, 4)
    for same in (3, None):
        directory = opened(tmp_path, same)
        assert directory.site.n_shards == 3
        directory.close()


def test_a_damaged_secret_is_said(tmp_path: Path) -> None:
    """Links with half a secret would all be refused, one by one."""
    opened(tmp_path).close()
    (tmp_path / "secret").write_text("abc")
    with pytest.raises(DirectoryError, match="secret is damaged"):
        opened(tmp_path)


def test_a_place_that_cannot_be_a_directory_is_one_sentence(tmp_path: Path) -> None:
    """A file in the way, above or in place of it."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DirectoryError) as caught:
            opened(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_is_found_and_forgotten(tmp_path: Path) -> None:
    """From begin to end of a run others can find it; then nothing is left of it but the data."""
    directory = opened(tmp_path)
    run_dir = directory.begin_run(joined=False)
    run = read_run(tmp_path)
    assert run is not None and run.run_dir == run_dir and run.launcher.pid == os.getpid() and run.launched()
    assert len(str(run_dir)) <= 32, "Ray's sockets lie up to 75 bytes below it, and a socket path has 107"
    directory.end_run()
    assert read_run(tmp_path) is None and not run_dir.exists()
    directory.close()


def test_a_long_temporary_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket path that is too long fails late and strangely."""
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    directory = opened(tmp_path / "d")
    assert directory.begin_run(joined=False).parent == Path("/tmp")
    directory.end_run()
    directory.close()


def test_a_run_of_another_boot_is_over(tmp_path: Path) -> None:
    """After a reboot somebody else has the launcher's pid, perhaps even its start time."""
    me = identify(os.getpid())
    assert me is not None
    record_run(tmp_path, Run(tmp_path / "r", me, boot_id="of another time", joined=False))
    run = read_run(tmp_path)
    assert run is not None and not run.launched()
    record_run(tmp_path, Run(tmp_path / "r", me, boot_id(), joined=False))
    run = read_run(tmp_path)
    assert run is not None and run.launched()


def test_opening_ends_what_a_killed_run_left_and_nothing_else(tmp_path: Path) -> None:
    """Leftovers are known by their mark; a process without it, or of another directory, lives on. The old run directory goes too."""
    mine, others, nobodys = sleeper(HOLDFAST_DATA=str(tmp_path)), sleeper(HOLDFAST_DATA=str(tmp_path / "other")), sleeper()
    ids = [started(process) for process in (mine, others, nobodys)]
    old = tmp_path / "holdfast-old"
    old.mkdir()
    record_run(tmp_path, Run(old, ProcessId(1, 0), boot_id(), joined=False))
    try:
        opened(tmp_path).close()
        assert [alive(each) for each in ids] == [False, True, True]
        assert not old.exists() and read_run(tmp_path) is None
    finally:
        for process in (mine, others, nobodys):
            process.kill()
            process.communicate()


def test_a_run_directory_that_is_not_ours_by_name_is_not_removed(tmp_path: Path) -> None:
    """run.json is a file like any other; what it says must not make us remove somebody's home."""
    precious = tmp_path / "precious"
    precious.mkdir()
    record_run(tmp_path, Run(precious, ProcessId(1, 0), boot_id(), joined=False))
    opened(tmp_path).close()
    assert precious.exists()


def test_a_signal_never_reaches_the_next_process_with_the_same_pid() -> None:
    """A process is its pid and its start time."""
    process = sleeper()
    real = started(process)
    try:
        assert not send(ProcessId(real.pid, real.start_time + 1), signal.SIGTERM) and process.poll() is None
        assert send(real, signal.SIGTERM)
    finally:
        process.communicate()
    assert not alive(real) and not send(real, signal.SIGTERM)


def test_a_corpse_is_not_alive() -> None:
    """Killed and not yet buried counts as gone: its locks and ports are free."""
    process = sleeper()
    real = started(process)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(real) and real not in descendants(os.getpid()) and real not in marked(DATA_MARK, "x")
    process.communicate()


def test_ending_goes_on_until_nothing_new_is_found() -> None:
    """A process that appears while others are being ended is ended too."""
    processes = [sleeper(), sleeper()]
    ids = [started(process) for process in processes]
    rounds = 0

    def find() -> list[ProcessId]:
        nonlocal rounds
        rounds += 1
        return [each for each in ids[: 1 if rounds == 1 else 2] if alive(each)]

    assert end(find, within=60.0) == [] and not any(alive(each) for each in ids)
    for process in processes:
        process.communicate()


def test_descendants_are_found_at_any_depth() -> None:
    """A child of a child is ours."""
    program = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    grandchild = identify(int(parent.stdout.readline()))
    assert grandchild is not None and {grandchild, identify(parent.pid)} <= set(descendants(os.getpid()))
    assert end(lambda: [each for each in descendants(os.getpid()) if each.pid in (grandchild.pid, parent.pid)], within=60.0) == []
    parent.communicate()


def test_what_auto_stands_for_is_settled_at_the_first_start(tmp_path: Path) -> None:
    """The site says it, for ever; one of before there was a quota gets it at its next start, with what it has stored."""
    first = opened(tmp_path / "d")
    settled = first.site.quota_auto_bytes
    assert 0 < settled < shutil.disk_usage(tmp_path).free
    first.close()
    (tmp_path / "d" / "shards" / "0").mkdir(parents=True)
    (tmp_path / "d" / "shards" / "0" / "data").write_bytes(bytes(range(256)) * 4096)
    again = opened(tmp_path / "d")
    assert again.site.quota_auto_bytes == settled
    again.close()
    site = tmp_path / "d" / "site.json"
    fields = json.loads(site.read_text())
    del fields["quota_auto_bytes"]
    site.write_text(json.dumps(fields))
    old = opened(tmp_path / "d")
    assert old.site.quota_auto_bytes == json.loads(site.read_text())["quota_auto_bytes"] > 0
    assert old.site.site == first.site.site
    old.close()
