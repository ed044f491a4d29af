"""What a bridge inwards makes of the session at the other broker: which identifiers still count, and what has to be subscribed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.bridge.standing import Standing, read_standing, write_standing
from mqtt.packets import Publish
from tests.actors.bridge.carried import Bridges, inward, kill, online
from tests.actors.bridge.test_inward import brings
from tests.actors.one_loop import OneLoop
from tests.bridge.givers import GivingBroker
from tests.broker.replaying import Replayer

pytestmark = [pytest.mark.slow]


def qos_2(payload: bytes, *, dup: bool = False) -> Publish:
    """Under the one identifier of these tests."""
    return Publish(4 | dup << 3, 7, b"a/1", payload)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def reading(broker: OneLoop) -> Replayer:
    reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
    await reader.replay("a/#", qos=2)
    return reader


async def bring_half(there: GivingBroker, broker: OneLoop) -> None:
    """A message whose PUBREC has left for there, when the bridge is killed: this broker knows its identifier."""
    bridges = Bridges(broker)
    await bridges.server.start()
    await online(bridges.server, "in")
    there.give(qos_2(b"one"))
    await until(lambda: ("PUBREC", [7]) in there.words)
    await kill(bridges.server)


def at(there: GivingBroker) -> tuple[str, ...]:
    return brings(int(there.url.rpartition(":")[2]))


@pytest.mark.parametrize("known", [True, False], ids=["answered", "proven by what it sends"])
async def test_in_a_session_that_goes_on_a_message_that_comes_again_is_here_once(known: bool, tmp_path: Path) -> None:
    """Also where CONNACK to a CONNECT of ours was lost, and nobody knows what that has done."""
    async with GivingBroker() as there, OneLoop(tmp_path, sets=at(there)) as broker:
        reader = await reading(broker)
        await bring_half(there, broker)
        there.present, there.resumed = True, [qos_2(b"one", dup=True)]
        if not known:
            _doubt(tmp_path)
        async with Bridges(broker) as server:
            await until(lambda: there.words.count(("PUBREC", [7])) == 2)
            await online(server, "in")
            there.give(Publish(2, 8, b"a/1", b"two"))
            assert await reader.payloads(2) == ["one", "two"]


@pytest.mark.parametrize("present", [False, True], ids=["new", "of which nothing is certain"])
async def test_in_another_session_an_identifier_is_of_another_message(present: bool, tmp_path: Path) -> None:
    """It is not taken for the one that this broker still knows."""
    async with GivingBroker() as there, OneLoop(tmp_path, sets=at(there)) as broker:
        reader = await reading(broker)
        await bring_half(there, broker)
        there.present = present
        if present:
            _doubt(tmp_path)
        async with Bridges(broker) as server:
            await online(server, "in")
            assert len(there.subscribed) == 2
            there.give(qos_2(b"another"))
            assert await reader.payloads(2) == ["one", "another"]


async def test_a_former_filter_is_ended_even_when_that_was_not_heard_before(tmp_path: Path) -> None:
    """As often as it takes."""
    async with GivingBroker(present=True) as there, OneLoop(tmp_path, sets=at(there)) as broker:
        async with Bridges(broker) as server:
            await online(server, "in")
        broker.sets_of_bridges(*brings(int(there.url.rpartition(":")[2]), topic_filter="b/#"))
        async with Bridges(broker) as server:
            await online(server, "in")
            assert [each.filters for each in there.unsubscribed] == [(b"a/#",)]
            await until(lambda: _standing(tmp_path).filters == ("b/#",))
            assert inward(server, "in").status().connections == 1


async def test_an_answer_that_says_no_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """A password that is wrong for a while costs nothing."""
    async with GivingBroker() as there, OneLoop(tmp_path, sets=at(there)) as broker:
        async with Bridges(broker) as server:
            await online(server, "in")
            await until(lambda: _standing(tmp_path).qos == 2)
        before = _standing(tmp_path)
        there._code = type(there._code)(0x86)
        async with Bridges(broker) as server:
            await until(lambda: "refused the connection" in inward(server, "in").last_error)
            assert inward(server, "in").status().breaker == "closed"
        assert _standing(tmp_path) == before and before.certain


def test_a_file_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    """Nothing is certain then."""
    standing = Standing("mqtt://there", "c", "5", "here", ("a/#",), 2, True)
    write_standing(tmp_path / "in", standing)
    assert read_standing(tmp_path / "in") == standing
    for text in ("", "{}", "[]", '{"url": 1}'):
        (tmp_path / "in" / "session.json").write_text(text)
        assert read_standing(tmp_path / "in") is None


def _standing(data_dir: Path) -> Standing:
    found = read_standing(data_dir / "bridges" / "in")
    assert found is not None
    return found


def _doubt(data_dir: Path) -> None:
    """As it is written before a CONNECT whose answer was lost."""
    write_standing(data_dir / "bridges" / "in", _standing(data_dir).uncertain())
