"""The launcher under a service manager and in a container: killed and started again by the unit's own line, and as process 1."""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from actors import ROOT
from tests.broker.client import Client, settled
from tests.broker.history import History, faults
from tests.broker.running import MARK, RunningBroker, alive, free_port
from tests.house.test_container import the

WITHIN_S = 90.0
MESSAGES = 200


def until(done: Callable[[], bool], what: Callable[[], object]) -> float:
    """Seconds it took."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() < began + WITHIN_S, what()
        time.sleep(0.1)
    return time.monotonic() - began


async def publish(port: int, history: History, name: str) -> None:
    """Messages for a durable session, which is away before they are sent."""
    session, publisher = Client(port, "session", history, version=5), Client(port, name, history)
    await session.start()
    if "session" not in history.sessions:
        await session.subscribe("s/#", 1)
    await session.stop()
    await publisher.start()
    for n in range(MESSAGES):
        await publisher.publish(f"s/{n % 5}", 1)
    await publisher.acknowledged(WITHIN_S)
    await publisher.stop()


async def take(port: int, history: History) -> None:
    session = Client(port, "session", history, version=5)
    await session.start()
    await settled(history, WITHIN_S)
    await session.stop()


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    parser.read(ROOT / "deploy/systemd/holdfast.service")
    return parser["Service"]


def test_a_killed_launcher_is_replaced_by_the_units_own_line(tmp_path: Path) -> None:
    """SIGKILL of the launcher, and at once the same ExecStart while all others run: they end, one broker is there, nothing is lost."""
    service = unit()
    assert (service["Restart"], service["KillMode"], service["Type"]) == ("always", "mixed", "exec")
    example = re.search(r"^```toml\n(# /etc/holdfast/holdfast.toml\n.*?)^```", (ROOT / "docs/install.md").read_text(), re.M | re.S)
    assert example is not None
    broker = RunningBroker(data_dir=tmp_path / "data")
    config = tmp_path / "holdfast.toml"
    config.write_text(
        f"{example[1]}\n[admin]\nenable = false\n".replace('"/var/lib/holdfast"', f'"{broker.data_dir}"').replace(
            ":1883", f":{broker.port}"
        )
    )
    program, *words = shlex.split(service["ExecStart"])
    assert program == "/opt/holdfast/.venv/bin/holdfast"
    command = [str(broker.executable), *(word.replace("/etc/holdfast/holdfast.toml", str(config)) for word in words)]

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "journal").open("ab") as journal:
            environment = {**os.environ, MARK: broker.mark}
            return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=journal, stderr=journal, umask=0o077)

    history = History()
    first = start()
    try:
        until(lambda: broker.status().ready, broker.status)
        before = broker.status().pids()
        assert broker.status().pids("launcher") == [first.pid]
        asyncio.run(publish(broker.port, history, "first"))
        first.kill()
        first.wait()
        second = start()
        try:
            took_s = until(lambda: broker.status().ready, (tmp_path / "journal").read_text)
            assert [pid for pid in before if alive(pid)] == [], "nobody of the former broker lives beside this one"
            assert broker.status().pids("launcher") == [second.pid]
            asyncio.run(publish(broker.port, history, "second"))
            asyncio.run(take(broker.port, history))
            assert faults(history) == [] and len(history.due("session")) == 2 * MESSAGES
            assert took_s < WITHIN_S / 2
            # `systemctl stop`.
            second.send_signal(signal.SIGTERM)
            assert second.wait(WITHIN_S) == 0
            assert broker.status().processes == ()
        finally:
            second.kill()
            second.wait()
    finally:
        first.kill()
        first.wait()
        broker.close()


@pytest.mark.needs("own-processes")
@pytest.mark.needs("interpreted")
def test_as_process_1_it_stops_in_good_order_and_is_healthy_before(tmp_path: Path) -> None:
    """By the image's words and configuration, at their places: the health check says when clients can come, SIGTERM ends all of it."""
    port, data = free_port(), tmp_path / "data"
    data.mkdir()
    work = the("WORKDIR")
    place = [
        "mount -t tmpfs tmpfs /opt", "mkdir /opt/holdfast", f"mount --bind {ROOT} /opt/holdfast", "mount -t tmpfs tmpfs /var/lib",
        f"mkdir -p {the('VOLUME')}", f"mount --bind {data} {the('VOLUME')}",
        f"cp /opt/holdfast/deploy/docker/holdfast.toml {work}", f"cd {work}",
    ]  # fmt: skip
    path = the("ENV").partition("=")[2].replace("$PATH", os.environ["PATH"])
    words = [*shlex.split(the("ENTRYPOINT").strip("[]").replace(",", " ")), *shlex.split(the("CMD").strip("[]").replace(",", " "))]
    # The image listens for all; a test does not.
    words += ["--set", f"listeners.tcp.bind=127.0.0.1:{port}", "--set", "admin.enable=false"]
    script = " && ".join([*place, f"PATH={path}", f"exec {shlex.join(words)}"])
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
    environment = {**os.environ, "PYTHONPATH": "/opt/holdfast"}
    with (tmp_path / "output").open("wb") as output:
        outside = subprocess.Popen([*namespaces, script], env=environment, stdout=output, stderr=output)
    try:
        until(lambda: psutil.Process(outside.pid).children() != [], lambda: outside.poll())
        (first,) = psutil.Process(outside.pid).children()
        check = the("HEALTHCHECK").partition(" CMD ")[2]
        enter = ["nsenter", f"--target={first.pid}", "--user", "--mount", "--pid", "--preserve-credentials", "sh", "-c"]

        def healthy() -> bool:
            command = f"PATH={path} && cd {work} && {check}"
            return subprocess.run([*enter, command], env=environment, capture_output=True, check=False).returncode == 0

        assert not healthy(), "nobody listens yet"
        until(healthy, (tmp_path / "output").read_text)
        history = History()
        asyncio.run(publish(port, history, "publisher"))
        asyncio.run(take(port, history))
        assert faults(history) == []
        first.terminate()
        assert outside.wait(WITHIN_S) == 0, (tmp_path / "output").read_text()
        # By the cores of this machine the shard has a process of its own, or shares one.
        (log,) = [path for path in (data / "logs").iterdir() if path.name in ("shard-0.log", "compact-0.log")]
        assert "server.stopped" in log.read_text()
    finally:
        # And all others with it: it was their process 1.
        outside.kill()
        outside.wait()
