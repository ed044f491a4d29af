"""One real broker that asks who comes in: programs with passwords, tokens, a plugin that ends or stands still, and no secret in a log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jwt
import pytest

from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.broker.standing import Standing
from tests.conformance.packets import CONNACK, connect
from tests.conformance.peer import Peer, fresh
from tests.needs import find_program

pytestmark = pytest.mark.needs("mosquitto")
PASSWORD, NEW, TOKEN_SECRET = "hunter2-in-no-log", "hunter3-in-no-log", "token-secret-in-no-log-0123456789"
PATIENCE_S = 60.0
PLUGIN = """
import asyncio, os, time
from actors.plugin.port import Verdict

class Door:
    async def start(self, settings):
        self.password = settings["password"].encode()

    async def login(self, login):
        if login.user == "blocks":
            time.sleep(3600)
        if login.user == "ends":
            os._exit(1)
        return Verdict(login.password == self.password, groups=("plugged",))

    async def may(self, asked):
        return None
"""


@dataclass(frozen=True, slots=True)
class Guarded:
    broker: RunningBroker
    file: Path

    def holdfast(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(self.broker.executable), *words]
        return subprocess.run(command, input=given, cwd=self.broker.directory, capture_output=True, text=True, timeout=60, check=False)

    def set_password(self, user: str, password: str) -> None:
        done = self.holdfast("passwd", str(self.file), user, given=f"{password}\n")
        assert done.returncode == 0, done.stderr

    async def lets_in(self) -> None:
        """Ann with her new password, by the file, and whoever the plugin knows."""
        await asyncio.to_thread(self.set_password, "ann", NEW)
        await self.until("ann", NEW, 0)
        await self.until("plug", PASSWORD, 0)

    def publishes(self, *shown: str) -> bool:
        """Whether mosquitto_pub gets its message in."""
        program = find_program("mosquitto_pub")
        assert program is not None
        command = [program, "-V", "5", "-p", str(self.broker.port), "-t", "t", "-m", "x", "-q", "1", *shown]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

    async def code(self, user: str | None, password: str | None) -> int:
        shown = password.encode() if password is not None else None
        peer = await Peer.open(self.broker.port, 5, connect(5, fresh("c"), username=user, password=shown))
        return (await peer.answer(CONNACK)).code

    async def until(self, user: str, password: str, code: int) -> float:
        """How long it took until this login is answered so."""
        began = time.monotonic()
        while await self.code(user, password) != code:
            assert time.monotonic() - began < PATIENCE_S, f"{user} was not answered with {code:#x} within {PATIENCE_S} s"
            await asyncio.sleep(0.1)
        return time.monotonic() - began


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    place = tmp_path_factory.mktemp("logins")
    (place / "door_plugin.py").write_text(PLUGIN)
    (place / "plugins.toml").write_text(f'["door_plugin:Door"]\npassword = "{PASSWORD}"\n')
    (place / "token-secret").write_text(TOKEN_SECRET)
    (place / "token-secret").chmod(0o600)
    settings = {
        **QUIET_RAY,
        "durable_storage.messages.n_shards": "1",
        "log.level": "debug",
        "access.password.file": str(place / "passwords"),
        "access.jwt.keys": f"file://{place / 'token-secret'}",
        "access.jwt.algorithms": '["HS256"]',
        "access.plugin.kind": "holdfast",
        "access.plugin.plugins": '["door_plugin:Door"]',
        "access.plugin.config_file": str(place / "plugins.toml"),
    }
    importable = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    broker = RunningBroker(Options(settings, environment={"PYTHONPATH": importable}))
    made = Guarded(broker, place / "passwords")
    made.set_password("ann", PASSWORD)
    with broker:
        yield made


async def test_mosquitto_comes_in_with_a_right_password_and_with_no_other(guarded: Guarded) -> None:
    """By the file, by a token, by the plugin; a wrong one, and one without a name, do not."""
    token = jwt.encode({"sub": "tom", "exp": time.time() + 3600}, TOKEN_SECRET, "HS256")
    assert await asyncio.to_thread(guarded.publishes, "-u", "ann", "-P", PASSWORD)
    assert not await asyncio.to_thread(guarded.publishes, "-u", "ann", "-P", "wrong")
    assert await asyncio.to_thread(guarded.publishes, "-u", "tom", "-P", token)
    assert not await asyncio.to_thread(guarded.publishes, "-u", "tom", "-P", token[:-4] + "AAAA")
    await guarded.until("plug", PASSWORD, 0)
    assert await guarded.code("plug", "wrong") == 0x86
    assert await guarded.code(None, None) == 0x86


async def test_a_new_password_counts_and_throws_out_the_old_one(guarded: Guarded) -> None:
    """Without any other command; who came in by the former one is closed."""
    there = await Peer.open(guarded.broker.port, 5, connect(5, fresh("c"), username="ann", password=PASSWORD.encode()))
    assert (await there.answer(CONNACK)).code == 0
    await asyncio.to_thread(guarded.set_password, "ann", NEW)
    await there.closed(0x87)
    assert await guarded.code("ann", PASSWORD) == 0x86 and await guarded.code("ann", NEW) == 0


async def test_a_plugin_that_ends_is_there_again(guarded: Guarded) -> None:
    """Those of others are served meanwhile; who waits for it is told that nobody answers."""
    await guarded.lets_in()
    (pid,) = guarded.broker.status().pids("plugin")
    assert await guarded.code("ends", "x") == 0x88
    assert await guarded.code("ann", NEW) == 0
    await guarded.until("plug", PASSWORD, 0)
    (second,) = guarded.broker.status().pids("plugin")
    assert second != pid
    guarded.broker.signal(second, signal.SIGKILL)
    await guarded.until("plug", PASSWORD, 0x88)
    await guarded.until("plug", PASSWORD, 0)


async def test_a_plugin_that_stands_still_is_replaced(guarded: Guarded) -> None:
    """Within a while; each of its logins is a no within the deadline, then at once, with an alarm, and everybody else is served as ever."""
    await guarded.lets_in()
    asked = [asyncio.create_task(guarded.code(user, PASSWORD)) for user in ("blocks", *["plug"] * 5)]
    async with Standing() as standing:
        began = time.monotonic()
        assert await guarded.code("ann", NEW) == 0
        took = time.monotonic() - began - standing.seconds
        assert await asyncio.gather(*asked) == [0x88] * 6
        all_took = time.monotonic() - began - standing.seconds
    assert took < 1.5 and all_took < 6, (took, all_took)
    words = guarded.holdfast("status", "--json", "--data-dir", str(guarded.broker.data_dir)).stdout
    assert any("plugin" in alarm["cause"] for alarm in json.loads(words)["alarms"])
    await guarded.until("plug", PASSWORD, 0)


async def test_no_secret_is_in_any_log(guarded: Guarded) -> None:
    """At the level of debug, after all of the above; nor is the file readable by others."""
    assert await guarded.code("ann", "wrong") == 0x86
    texts = b"".join([path.read_bytes() for path in guarded.broker.data_dir.rglob("*.log*")])
    texts += (guarded.broker.directory / "commands.log").read_bytes()
    assert b"client.refused" in texts
    for secret in (PASSWORD, NEW, TOKEN_SECRET, *guarded.file.read_text().split(":")[1:]):
        assert secret.strip().encode() not in texts
    assert os.stat(guarded.file).st_mode & 0o777 == 0o600
