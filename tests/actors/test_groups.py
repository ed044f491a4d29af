"""Durable shared groups over the real servers: members at several gateways, and processes that end and come back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import Receive, Scope, Send

from actors.admin.app import make_app
from actors.admin.broker import Broker
from actors.admin.guard import BY
from actors.admin.health import Health
from actors.inquiry import groups
from actors.inquiry.groups import Start, checked_group
from actors.inquiry.moving import Senseless
from actors.session import SessionServer
from actors.shard import ShardServer
from config.load import load
from shards.frames import EARLIEST, LATEST, WALL
from shards.slots import SlotTable
from tests.actors.hand import Ended, Got, Hand
from tests.actors.one_loop import OneLoop
from tests.admin.asked import Answer, ask
from tests.broker import wire
from tests.cli.test_asked import lines, said, told
from tests.cli.test_leases import announce

GROUP = "$share/g/t/#"
SETS = ("durable_sessions.groups.redelivery_after=1s", "durable_sessions.groups.strategy=round_robin")


async def connected(port: int, client: str, version: wire.Version = 5) -> Hand:
    """Connect as a client does that is told to try again: the first answers may be 0x88."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await Hand.connect(port, client, version)
            except (AssertionError, Ended, ConnectionResetError):
                await asyncio.sleep(0.02)


def payloads(messages: list[Got]) -> list[str]:
    return [got.payload for got in messages]


async def settled(broker: OneLoop) -> None:
    """Nobody has anything of a group any more, and the group knows."""
    async with asyncio.timeout(60):
        while any(shard._core._deliveries._there for shard in broker.shards):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("compact", [False, True], ids=["spread", "compact"])
async def test_members_share_what_comes_and_take_over_from_one_that_is_lost(tmp_path: Path, compact: bool) -> None:
    """Of MQTT 3.1.1 and 5; over a new session actor; what is acknowledged comes to nobody again."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=SETS, compact=compact) as broker:
        first = await connected(broker.port, "first", 5)
        await first.subscribe(GROUP, 1)
        second = await connected(broker.port, "second", 4)
        await second.subscribe(GROUP, 1)
        publisher = await Hand.connect(broker.port, "pub", 5, clean=True, expiry_s=0)
        sent = [f"m{number}" for number in range(10)]
        await publisher.published("t/1", *sent, qos=1)
        mine, other = await first.messages(5), await second.messages(5)
        assert sorted(payloads([*mine, *other])) == sorted(sent)
        await second.complete_all(*other)
        await first.complete_all(mine[0])
        await first.alive()
        first.drop()
        # After a while the second one has them.
        late = await second.messages(4)
        assert payloads(late) == payloads(mine[1:]) and not any(got.dup for got in late)
        await second.complete_all(*late)
        await settled(broker)

        await broker.sessions[0].stop()
        broker.sessions[0] = SessionServer(broker.topology, 0)
        await broker.sessions[0].start()
        first, second = await connected(broker.port, "first", 5), await connected(broker.port, "second", 4)
        assert first.present and second.present
        publisher = await connected(broker.port, "pub")
        await publisher.published("t/2", "a", "b", qos=1)
        assert sorted(payloads([await first.message(), await second.message()])) == ["a", "b"]


def test_a_group_begins_at_a_time_that_has_been_a_span_or_an_end() -> None:
    """The same span is the same word at any time; everything else is one sentence."""
    now_ms = 1_000_000_000_000
    assert Start.parse("latest") == Start(LATEST, 0, "latest") and Start.parse("earliest") == Start(EARLIEST, 0, "earliest")
    assert Start.parse("-2h", now_ms) == Start.parse("120m", now_ms) == Start(WALL, now_ms - 7_200_000, "-2h")
    moment = Start(WALL, now_ms, "2001-09-09T01:46:40.000Z")
    assert Start.parse("2001-09-09T01:46:40Z", now_ms) == Start.parse("2001-09-09T03:46:40+02:00", now_ms) == moment
    for text, sentence in (("noon", "is no beginning"), ("1:7", "is no beginning"), ("2001-09-09T01:46:41Z", "is still to come")):
        with pytest.raises(Senseless, match=sentence):
            Start.parse(text, now_ms)
    assert checked_group(GROUP) == GROUP
    for text in ("t/#", "$share/g", "$share/+/t", "$share/g/t/#/x"):
        with pytest.raises(Senseless, match="is no group"):
            checked_group(text)


@pytest.mark.slow
async def test_a_group_is_declared_and_dropped_by_command_and_over_http(tmp_path: Path) -> None:
    """It keeps messages before anybody has joined it; what cannot be is one sentence, with the code of commands and of HTTP."""
    async with OneLoop(tmp_path, n_shards=2) as loop:
        announce(loop)
        assert lines(await said(tmp_path, "groups", "ls")) == ["there are no shared groups of durable sessions"]
        (line,) = lines(await said(tmp_path, "groups", "declare", GROUP))
        assert line == f"{GROUP} is declared: it keeps what is published from latest on, with members or without"
        publisher = await Hand.connect(loop.port, "pub", 5, clean=True, expiry_s=0)
        sent = [f"m{number}" for number in range(4)]
        await publisher.published("t/1", *sent, qos=1)
        one = await told(tmp_path, "groups", "declare", GROUP, "--from", "latest")
        assert (one["begins"], one["strategy"], one["ready"], one["members"], one["kept_since_at"]) == ("latest", None, True, 0, None)
        shown = await told(tmp_path, "groups", "show", GROUP)
        assert shown["group"] == GROUP and shown["lag"]["unread"] == 4 and shown["declared_at"].endswith("Z")
        assert any(line.split() == ["members", "0"] for line in lines(await said(tmp_path, "groups", "show", GROUP)))
        for words, code, sentence in (
            (("declare", GROUP, "--from", "-1h"), 1, "is declared already, from latest: to declare it otherwise, drop it first."),
            (("declare", GROUP, "--strategy", "round_robin"), 1, "is declared already"),
            (("declare", GROUP, "--strategy", "best"), 2, "is no strategy"), (("declare", "t/#"), 2, "is no group"),
            (("declare", GROUP, "--from", "noon"), 2, "is no beginning"), (("drop", GROUP, "--json"), 2, "say --yes"),
            (("show", "$share/no/t"), 1, "there is no group"), (("drop", "$share/no/t", "--yes"), 1, "there is no group"),
        ):  # fmt: skip
            refused = await said(tmp_path, "groups", *words)
            assert refused.exit_code == code and sentence in refused.stderr, words
        member = await connected(loop.port, "member")
        await member.subscribe(GROUP, 1)
        await member.complete_all(*(got := await member.messages(4)))
        assert payloads(got) == sent
        await settled(loop)
        heads, row = lines(await said(tmp_path, "groups", "ls"))
        assert heads.split()[:3] == ["GROUP", "MEMBERS", "DECLARED"] and row.split()[:2] == [GROUP, "1"]
        assert "has 1 member, who would keep it" in (await said(tmp_path, "groups", "drop", GROUP, "--yes")).stderr
        assert "is as it was" in (await said(tmp_path, "groups", "drop", GROUP, answer="n\n")).stderr

        broker = Broker(loop.topology, load(environ={}))
        health = Health(broker)
        app = make_app(broker, health)

        async def keyed(scope: Scope, receive: Receive, send: Send) -> None:
            # Decoded as the guard does it.
            await app({**scope, "path": scope["path"].replace(GROUP, GROUP.replace("/", "\0")), BY: "key:ops"}, receive, send)

        async def asked(method: str, target: str = "", body: Any = None) -> Answer:
            parts = [json.dumps(body).encode() if body is not None else b""]
            return await ask(keyed, f"/api/v5/groups{target}", method, {"content-type": "application/json"}, parts)

        path = f"/{quote(GROUP, safe='')}"
        try:
            (listed,) = (await asked("GET")).json["data"]
            assert (listed["group"], listed["members"], listed["begins"]) == (GROUP, 1, "latest")
            assert (await asked("GET", path)).json["lag"]["messages"] == 0
            assert (await asked("DELETE", path)).code == (409, "CONFLICT")
            assert (await asked("DELETE", f"{path}?force=true")).json == {"group": GROUP, "ended": False, "members": 1}
            assert (await asked("DELETE", path)).code == (409, "CONFLICT")
            for body, status in (
                ({"group": GROUP, "begins": "earliest"}, 409), ({"group": "t"}, 400), ({"group": GROUP, "begins": "noon"}, 400),
                ({"group": GROUP, "strategy": "best"}, 400), ({}, 400),
            ):  # fmt: skip
                answer = await asked("POST", "", body)
                assert answer.status == status, (body, answer.json)
            declared = (await asked("POST", "", {"group": GROUP, "strategy": "round_robin"})).json
            assert declared["strategy"] == "round_robin" and declared["ready"] and declared["members"] == 1
            await member.unsubscribe(GROUP)
            assert (await asked("DELETE", path)).json == {"group": GROUP, "ended": True, "members": 0}
            assert (await asked("GET", path)).code == (404, "NOT_FOUND") and (await asked("DELETE", path)).code == (404, "NOT_FOUND")
        finally:
            await health.stop()
            await broker.close()
        await member.close()
        await publisher.close()


@pytest.mark.slow
async def test_a_declaration_waits_for_a_shard_that_is_away_and_is_done_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Over a new session actor, too; whoever asks is told that it does not hold yet."""
    monkeypatch.setattr(groups, "WITHIN_S", 0.2)
    async with OneLoop(tmp_path, n_shards=2) as broker:
        announce(broker)
        away = 1 - SlotTable.initial(2).shard_of(GROUP.encode())
        await broker.shards[away].stop()
        refused = await said(tmp_path, "groups", "declare", GROUP)
        assert refused.exit_code == 1 and "is declared, but not every shard has taken that in yet" in refused.stderr
        await broker.kill_session()
        broker.shards[away] = ShardServer(broker.topology, away)
        await broker.shards[away].start()
        async with asyncio.timeout(60):
            while (await said(tmp_path, "groups", "declare", GROUP)).exit_code:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        publisher = await connected(broker.port, "pub")
        await publisher.published("t/1", "kept", qos=1)
        member = await connected(broker.port, "member")
        await member.subscribe(GROUP, 1)
        assert payloads([await member.message()]) == ["kept"]


@pytest.mark.slow
async def test_how_far_a_group_is_behind_is_told_before_that_is_committed(tmp_path: Path) -> None:
    """As its dispatcher has it: what members have finished is committed later, here much later."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        announce(broker)
        member = await connected(broker.port, "member")
        await member.subscribe(GROUP, 1)
        state = broker.sessions[0].core._state
        state.options = replace(state.options, lazy_commit_ms=600_000)
        publisher = await Hand.connect(broker.port, "pub", 5, clean=True, expiry_s=0)
        await publisher.published("t/1", *(f"m{number}" for number in range(4)), qos=1)
        got = await member.messages(4)
        assert (await told(tmp_path, "groups", "show", GROUP))["lag"]["messages"] == 4
        await member.complete_all(*got)
        async with asyncio.timeout(60):
            while (await told(tmp_path, "groups", "show", GROUP))["lag"]["messages"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
