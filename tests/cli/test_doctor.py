"""`holdfast doctor`: each thing that is wrong is a sentence; what is in order is not mentioned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from actors.alarms import Alarm, raise_alarm
from actors.inquiry.findings import Disks, Finding, look
from actors.processes import identify
from actors.run import Run, boot_id, record_run
from cli.main import app
from config.load import load
from tests.actors.one_loop import OneLoop
from tests.cli.test_leases import announce

SITE = {"format": 1, "site": "0" * 16, "incarnation": 1, "n_shards": 2, "created": "2026-01-01T00:00:00Z"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """One in which there is nothing to find but that its broker is stopped."""
    tmp_path.chmod(0o700)
    (tmp_path / "site.json").write_text(json.dumps(SITE))
    (tmp_path / "secret").touch(mode=0o600)
    return tmp_path


def looked(path: Path, *sets: str, kind: str = "ext4", free: int = 1 << 40) -> list[Finding]:
    """On a disk of this kind."""
    config = load(sets=sets, environ={}, data_dir=str(path))
    return look(path, path / "shards", config, Disks(lambda _: kind, lambda _: free))


def sentences(found: list[Finding], serious: bool) -> str:
    return " | ".join(f"{one.about}: {one.sentence}" for one in found if one.serious is serious)


def test_a_stopped_broker_in_order_is_a_note(directory: Path) -> None:
    """Nobody is hurt that should not be."""
    found = looked(directory)
    assert [(one.about, one.serious) for one in found] == [("process", False)] and "does not run" in found[0].sentence


def test_what_is_wrong_on_the_disk(directory: Path) -> None:
    """A store that is gone, a secret that others may read, a network, no room, parts put aside: a sentence each."""
    (directory / "secret").chmod(0o644)
    (directory / "known-stores").mkdir()
    (directory / "known-stores" / "1").touch()
    (directory / "shards" / "0" / "quarantine" / "g3").mkdir(parents=True)
    found = looked(directory, kind="nfs4", free=100 << 20)
    for part in ("secret may be read by others (mode 0644)", "lies on nfs4", "new messages are refused", "the store of shard 1 is not at"):
        assert part in sentences(found, True)
    assert "parts of shard 0 were damaged" in sentences(found, False) and "(g3)" in sentences(found, False)
    assert "publishers wait unanswered" in sentences(looked(directory, free=1 << 20), True)
    assert "gone after a reboot" in sentences(looked(directory, kind="tmpfs"), True)


def test_a_quota_that_is_nearly_used_up(directory: Path) -> None:
    """A note at the soft mark, serious at the hard one."""
    (directory / "shards" / "0").mkdir(parents=True)
    (directory / "shards" / "0" / "data").write_bytes(b"x" * (66 << 20))
    assert "of storage_quota" in sentences(looked(directory, "storage_quota=70MiB"), False)
    assert "new messages are refused" in sentences(looked(directory, "storage_quota=64MiB"), True)
    assert "storage_quota" not in sentences(looked(directory, "storage_quota=1GiB"), False)


@pytest.mark.parametrize(("bind", "serious"), [("0.0.0.0:1883", True), ("127.0.0.1:1883", False)], ids=["open to all", "to this machine"])
def test_who_may_do_everything(directory: Path, bind: str, serious: bool) -> None:
    """Anonymous clients from elsewhere, where there are no rules."""
    found = looked(directory, f"listeners.tcp.bind={bind}", "listeners.tcp.anonymous=yes")
    assert ("may do everything" in sentences(found, True)) is serious


def test_keys_that_cross_a_network(directory: Path) -> None:
    """A note, where the admin process is reached from elsewhere."""
    assert "API keys cross the network" in sentences(looked(directory, "admin.listen=0.0.0.0:18083"), False)
    assert "API keys cross the network" not in sentences(looked(directory), False)


@pytest.mark.slow
async def test_what_is_wrong_while_it_runs(directory: Path) -> None:
    """Alarms, in their own words, and processes that are not there: those of one loop have no controller."""
    async with OneLoop(directory) as broker:
        announce(broker)
        raise_alarm(broker.topology.run_dir, Alarm("shard-0", "quota", "storage_quota is reached"))
        found = sentences(looked(directory), True)
        assert "alarm: shard-0: storage_quota is reached" in found and "controller-0" in found


def test_a_run_of_which_nothing_is_known_has_no_driver(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As between the start of the launcher and that of its processes."""
    launcher = identify(os.getpid())
    assert launcher is not None
    record_run(directory, Run(tmp_path_factory.mktemp("run"), launcher, boot_id(), False))
    assert "the driver is not there" in sentences(looked(directory), True)


def doctor(path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *words, "--data-dir", str(path)])


def test_the_command_ends_with_1_when_something_is_wrong(directory: Path) -> None:
    """A line for each thing, or JSON; a configuration that cannot be used is one of them; a directory that is not there is the only one."""
    (directory / "secret").chmod(0o644)
    result = doctor(directory)
    assert result.exit_code == 1 and "note  process: the broker does not run" in result.stdout and "WRONG directory: " in result.stdout
    assert {"about", "serious", "sentence"} == set(json.loads(doctor(directory, "--json").stdout)[0])
    nonsense = doctor(directory, "--set", "storage_quota=soon")
    assert nonsense.exit_code == 1 and "WRONG configuration: " in nonsense.stdout
    gone = doctor(directory / "no")
    assert gone.exit_code == 1 and gone.stdout.count("\n") == 1 and "is not there: name the data directory" in gone.stdout
