"""The plugin's process over a real link: questions are answered as their answers come, and the plugins may be anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from access.asked import Asked
from access.identity import ANONYMOUS, Identity
from access.login import Login
from actors.alarms import read_alarms
from actors.endpoints import Endpoint
from actors.links import Link, LinkClient
from actors.plugin.frames import Allowed, Answer, Ask, Denied, Failed, Frame, Invalidate, Told, decode, encode
from actors.plugin.loading import PluginRefused
from actors.plugin.port import Verdict
from actors.plugin.server import PluginServer
from actors.topology import Topology
from actors.wire import Wire
from config.access import PluginAccess
from config.dump import dump_json
from config.schema import Config
from mqtt.reason import ReasonCode
from tests.actors.places import topology_in
from tests.auth.by_hand import by_password, login

WITHIN_S = 60.0


class Door:
    """Lets in who has the password of its settings; knows nobody who is not of its settings' users."""

    async def start(self, settings: Mapping[str, object]) -> None:
        self._users, self._password = settings["users"], settings["password"]

    async def login(self, login: Login) -> Verdict | None:
        assert isinstance(self._users, list) and isinstance(self._password, str)
        if login.user not in self._users:
            return None
        return Verdict(login.password == self._password.encode(), groups=("of the door",))

    async def may(self, asked: Asked) -> bool | None:
        return asked.topic == "open" if asked.who.user else None


class Odd:
    """Does what the name of the user says."""

    def __init__(self) -> None:
        self.waited = asyncio.Event()

    async def start(self, settings: Mapping[str, object]) -> None: ...

    async def login(self, login: Login) -> Any:
        match login.user:
            case "raises":
                raise RuntimeError(f"the password {login.password!r} is wrong")
            case "waits":
                await self.waited.wait()
            case "frees":
                self.waited.set()
            case "lies":
                return Verdict(1)  # type: ignore[arg-type]
            case "text":
                return "yes"
            case "zero":
                return Verdict(False, code=0)
            case "banned":
                return Verdict(False, code=ReasonCode.BANNED)
            case "large":
                return Verdict(True, groups=("x" * 9_000,))
            case None:
                return Verdict(True)
        return Verdict(True, user="somebody")

    async def may(self, asked: Asked) -> Any:
        return None


class Broken:
    async def start(self, settings: Mapping[str, object]) -> None:
        raise ValueError(f"cannot use {settings!r}")


class Gateway:
    """The other end of the link."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.frames: list[Frame] = []
        self.changed = asyncio.Event()
        self.links: list[Link] = []

    def link_up(self, link: Link) -> None:
        self.links.append(link)
        self.changed.set()

    def link_frame(self, link: Link, data: bytes) -> None:
        frame = decode(data)
        self.frames.append(frame)
        if isinstance(frame, Told):
            self.answers |= dict(frame.answers)
        self.changed.set()

    def link_down(self, link: Link) -> None:
        self.links.remove(link)
        self.changed.set()

    async def until(self, what: Any) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not what():
                self.changed.clear()
                await self.changed.wait()

    async def ask(self, *questions: Login | Asked) -> list[Answer]:
        await self.until(lambda: self.links)
        self.links[0].send(encode(Ask(tuple(enumerate(questions)))))
        await self.until(lambda: len(self.answers) == len(questions))
        answers, self.answers = self.answers, {}
        return [answers[number] for number in sorted(answers)]


def with_plugins(config_file: Path, *classes: type[Any]) -> Config:
    names = tuple([f"{each.__module__}:{each.__name__}" for each in classes])
    plugin = PluginAccess(kind="holdfast", plugins=names, config_file=str(config_file))
    config = Config()
    return config.model_copy(update={"access": config.access.model_copy(update={"plugin": plugin})})


def configured(topology: Topology, config_file: Path, *classes: type[Any]) -> Topology:
    return replace(topology, config_json=dump_json(with_plugins(config_file, *classes)))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "plugins.toml"
    path.write_text(f'["{__name__}:Door"]\nusers = ["ann"]\npassword = "secret"\n')
    return path


@pytest.fixture
async def asking(tmp_path: Path, config_file: Path) -> AsyncIterator[tuple[Gateway, PluginServer, Topology]]:
    topology = configured(topology_in(tmp_path), config_file, Door, Odd)
    server, gateway = PluginServer(topology, 0), Gateway()
    await server.start()
    client = LinkClient(lambda: Endpoint(topology.plugin_endpoint()), gateway, Wire(topology.secret), "gateway", "gateway-0:a")
    client.start()
    yield gateway, server, topology
    await client.stop()
    await server.stop()


Asking = tuple[Gateway, PluginServer, Topology]


async def test_the_first_that_knows_a_user_answers(asking: Asking) -> None:
    """With its settings; the others are not asked."""
    gateway, _, _ = asking
    ann = Identity("ann", "plugin", ("of the door",))
    found = await gateway.ask(by_password(), by_password("ann", b"wrong"), by_password("bob"))
    assert found == [Allowed(ann.pack()), Denied(0x86), Allowed(Identity("somebody", "plugin").pack())]


async def test_who_has_no_name_is_the_anonymous_one(asking: Asking) -> None:
    """When he is let in without being given one."""
    assert await asking[0].ask(login()) == [Allowed(ANONYMOUS.pack())]


async def test_anything_but_true_is_a_no(asking: Asking) -> None:
    """And what is no verdict has failed; what was raised stays there."""
    users = ("raises", "lies", "text", "zero", "banned", "large")
    failed = Failed.RAISED
    found = await asking[0].ask(*[by_password(user) for user in users])
    assert found == [failed, Denied(0x86), failed, Denied(0), Denied(0x8A), failed]


async def test_one_that_waits_holds_up_nobody(asking: Asking) -> None:
    """Who asked behind it is answered before it."""
    gateway, _, _ = asking
    await gateway.until(lambda: gateway.links)
    gateway.links[0].send(encode(Ask(((1, by_password("waits")), (2, by_password("ann"))))))
    await gateway.until(lambda: gateway.answers)
    assert gateway.answers.keys() == {2}
    gateway.links[0].send(encode(Ask(((3, by_password("frees")),))))
    await gateway.until(lambda: len(gateway.answers) == 3)


async def test_what_somebody_may_is_said_by_the_first_with_an_opinion(asking: Asking) -> None:
    """And where none has one it is a no."""
    ann = Identity("ann", "plugin")
    asked = [Asked(ann, "c", "publish", "open"), Asked(ann, "c", "publish", "shut"), Asked(ANONYMOUS, "c", "publish", "open")]
    assert await asking[0].ask(*asked) == [True, False, False]


async def test_a_frame_of_another_form_ends_the_link(asking: Asking) -> None:
    """And the next is as good as the first."""
    gateway, _, _ = asking
    for bad in (b"\xc1", encode(Told(()))):
        await gateway.until(lambda: gateway.links)
        gateway.links[0].send(bad)
        await gateway.until(lambda: not gateway.links)
    assert await gateway.ask(by_password()) != []


async def test_other_plugins_count_when_they_are_there(asking: Asking, config_file: Path) -> None:
    """Those that cannot be loaded change nothing and raise an alarm; what was said before counts no more when they are others."""
    gateway, server, topology = asking
    server.reconfigure(with_plugins(config_file, Broken))
    assert server._loading is not None
    await server._loading
    (alarm,) = read_alarms(topology.run_dir)
    assert "Broken" in alarm.cause and "secret" not in alarm.cause
    assert await gateway.ask(by_password("bob")) == [Allowed(Identity("somebody", "plugin").pack())]
    server.reconfigure(with_plugins(config_file, Door))
    await gateway.until(lambda: Invalidate(None) in gateway.frames)
    assert await gateway.ask(by_password("bob")) == [Denied(0x86)] and not read_alarms(topology.run_dir)


async def test_a_start_that_fails_says_why_and_may_be_tried_again(tmp_path: Path, config_file: Path) -> None:
    """The host does that, until the plugin loads."""
    topology = configured(topology_in(tmp_path), config_file, Broken)
    server = PluginServer(topology, 0)
    for _ in range(2):
        with pytest.raises(PluginRefused, match="Broken"):
            await server.start()
    assert len(read_alarms(topology.run_dir)) == 1
