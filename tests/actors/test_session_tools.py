"""Tools for sessions, end to end: what they say and move is what the client gets; by inquiry, by command and over HTTP."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from actors.admin.app import make_app
from actors.admin.broker import Broker
from actors.admin.guard import BY
from actors.admin.health import Health
from actors.inquiry.asking import Asking
from actors.inquiry.moving import Done, NotThere, Senseless, Target, move
from actors.inquiry.peeking import peek
from actors.inquiry.stored import Stored
from config.load import load
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.admin.asked import ask
from tests.cli.test_asked import said, told
from tests.cli.test_leases import announce

HOUR_MS = 3_600_000


def test_a_place_is_a_time_a_span_an_end_or_a_position() -> None:
    """Everything else is one sentence."""
    now_ms = 1_000_000_000_000
    assert Target.parse("2h", now_ms) == Target.parse("-2h", now_ms) == Target(wall_ms=now_ms - 2 * HOUR_MS)
    assert Target.parse("2001-09-09T01:46:40Z") == Target.parse("2001-09-09T03:46:40+02:00") == Target(wall_ms=now_ms)
    assert Target.parse("earliest") == Target(earliest=True) and Target.parse("latest") == Target()
    assert Target.parse("3:77") == Target(shard=3, position=77)
    for text in ("", "yesterday", "2001-09-09T01:46:40", "3:", ":7", "a:1", "-", "3:7:7"):
        with pytest.raises(Senseless, match="is no place: a time such as"):
            Target.parse(text)


@pytest.mark.slow
async def test_what_is_peeked_comes_and_what_is_skipped_does_not(tmp_path: Path) -> None:
    """Away: peek, skip to a position, rewind, purge; online with a full window: its window finishes, the rest is purged."""
    async with OneLoop(tmp_path, n_shards=2) as broker, Asking(broker.topology, within=60) as asking, Stored(asking) as stored:
        away = await Hand.connect(broker.port, "away", 5, expiry_s=60)
        await away.subscribe("a/+", 1)
        await away.subscribe("b", 1)
        await away.close()
        publisher = await Hand.connect(broker.port, "p", 5, expiry_s=0)
        for number in range(6):
            await publisher.published(f"a/{number}", f"m{number}")
        await publisher.published("b", "other")
        await broker.forgotten("away")

        found, missing = await peek(asking, stored, "away", None, 4, True)
        assert found is not None and missing == () and not found.whole and not found.connected
        assert [(one.given, one.topic, one.filter, one.qos, b64decode(one.payload or "")) for one in found.messages] == [
            (False, f"a/{number}", "a/+", 1, b"m%d" % number) for number in range(4)
        ]
        third = found.messages[2]
        whole, _ = await peek(asking, stored, "away")
        assert whole is not None and whole.whole and len(whole.messages) == 7 and whole.messages[0].payload is None
        assert await peek(asking, stored, "nobody") == (None, ())

        place = Target.parse(f"{third.shard}:{third.position}")
        done = await move(asking, stored, "away", "skip", place, "a/+", "test")
        assert done == Done("away", "skip", "a/+", 1, 0)
        left, _ = await peek(asking, stored, "away")
        assert left is not None and [one.topic for one in left.messages] == ["a/3", "a/4", "a/5", "b"]
        assert await move(asking, stored, "away", "skip", Target.parse("2h"), None, "test") == Done("away", "skip", None, 0, 0)
        again = await move(asking, stored, "away", "rewind", Target.parse("1h"), "a/+", "test")
        assert again is not None and again.places >= 1
        with pytest.raises(NotThere):
            await move(asking, stored, "away", "skip", place, "c", "test")
        with pytest.raises(NotThere, match="there is no shard 7"):
            await move(asking, stored, "away", "skip", Target.parse("7:1"), None, "test")
        assert await move(asking, stored, "nobody", "purge", Target(), None, "test") is None

        back = await Hand.connect(broker.port, "away", 5, expiry_s=60, receive_max=2)
        first = await back.messages(2)
        assert {one.payload for one in first} <= {"m0", "m1", "other"}
        await broker.ranges_committed()
        waiting, _ = await peek(asking, stored, "away")
        assert waiting is not None and waiting.connected and any(one.given for one in waiting.messages)
        purged = await move(asking, stored, "away", "purge", Target(), None, "test")
        assert purged is not None and purged.closed == 5
        await back.complete(*first)
        await publisher.published("b", "new")
        assert (await back.taken()).payload == "new"
        await back.close()
        await broker.forgotten("away")
        nothing, _ = await peek(asking, stored, "away")
        assert nothing is not None and nothing.messages == () and nothing.whole
        await publisher.close()


@pytest.mark.slow
async def test_by_command_and_over_http(tmp_path: Path) -> None:
    """The same facts; who asks is passed on; nobody moves anything without having said yes, or without a key."""
    async with OneLoop(tmp_path) as loop:
        announce(loop)
        away = await Hand.connect(loop.port, "a/way", 5, expiry_s=60)
        await away.subscribe("a", 1)
        await away.published("b", "x")
        await away.close()
        publisher = await Hand.connect(loop.port, "p", 5, expiry_s=0)
        await publisher.published("a", "m0", "m1")
        await loop.forgotten("a/way")
        assert [one["topic"] for one in (await told(tmp_path, "sessions", "peek", "a/way"))["messages"]] == ["a", "a"]
        shown = (await said(tmp_path, "sessions", "peek", "a/way", "--limit", "1")).stdout
        assert "unread" in shown and "there is more" in shown
        kept = await said(tmp_path, "sessions", "skip", "a/way", "--to", "latest", answer="n\n")
        assert kept.exit_code == 1 and "will not be delivered" in kept.stdout and "is as it was" in kept.stderr
        assert (await said(tmp_path, "sessions", "skip", "a/way", "--to", "latest", "--json")).exit_code == 2
        assert (await said(tmp_path, "sessions", "skip", "a/way", "--to", "noon", "--yes")).exit_code == 2
        assert "has no durable session" in (await said(tmp_path, "sessions", "purge", "p", "--yes")).stderr
        done = await told(tmp_path, "sessions", "skip", "a/way", "--to", "latest", "--yes")
        assert done == {"client": "a/way", "what": "skip", "filter": None, "places": 1, "closed": 0}
        assert "nothing waits for a/way" in (await said(tmp_path, "sessions", "peek", "a/way")).stdout
        assert "1 place of a/way moved" in (await said(tmp_path, "sessions", "rewind", "a/way", "--to", "earliest", "--yes")).stdout

        broker = Broker(loop.topology, load(environ={}))
        health = Health(broker)
        app = make_app(broker, health)

        async def keyed(scope: Scope, receive: Receive, send: Send) -> None:
            # Decoded as the guard does it.
            await app({**scope, "path": scope["path"].replace("a/way", "a\0way"), BY: "key:ops"}, receive, send)

        path = "/api/v5/sessions/a%2Fway"
        try:
            found = (await ask(keyed, f"{path}/messages?payload=true&limit=5")).json
            assert [b64decode(one["payload"]) for one in found["messages"]] == [b"m0", b"m1"] and found["missing"] == []
            for target, body, status in (
                ("skip", {"to": "1h", "filter": "a"}, 200), ("skip", {"to": "soon"}, 400), ("skip", {}, 400),
                ("skip", {"to": "1h", "x": 1}, 400),
                ("rewind", {"to": "1h", "filter": "z"}, 404), ("purge", {"filter": "a"}, 200), ("purge", None, 200),
            ):  # fmt: skip
                parts = [json.dumps(body).encode() if body is not None else b""]
                answer = await ask(keyed, f"{path}/{target}", "POST", {"content-type": "application/json"}, parts)
                assert answer.status == status, (target, body, answer.json)
            assert (await ask(keyed, f"{path}/messages")).json["messages"] == []
            assert (await ask(app, "/api/v5/sessions/p/messages?payload=true")).status == 401
            assert (await ask(app, "/api/v5/sessions/p/messages")).code == (404, "CLIENTID_NOT_FOUND")
        finally:
            await health.stop()
            await broker.close()
        await publisher.close()


@pytest.mark.slow
async def test_a_message_that_its_client_ends_with_is_found_among_the_dead_letters(tmp_path: Path) -> None:
    """Sent, sent again, put away: the next one comes; and whoever looks for dead letters later gets it all the same."""
    async with OneLoop(tmp_path, sets=("durable_sessions.redelivery_limit=1",)) as broker:
        worker = await Hand.connect(broker.port, "worker", 5, expiry_s=60)
        await worker.subscribe("jobs", 1)
        publisher = await Hand.connect(broker.port, "p", 5, expiry_s=0)
        await publisher.published("jobs", "poison", "fine")
        got: list[list[str]] = []
        for _ in range(2):
            got.append([one.payload for one in await worker.messages(2)])
            await worker.close()
            await broker.forgotten("worker")
            worker = await Hand.connect(broker.port, "worker", 5, expiry_s=60)
        assert got == [["poison", "fine"]] * 2
        assert (await worker.taken()).payload == "fine"
        await broker.ranges_committed()
        assert broker.sessions[0].counters()["dead_letters"] == 1
        reader = await Hand.connect(broker.port, "reader", 4)
        await reader.subscribe("dead-letters", 1)
        async with Asking(broker.topology, within=60) as asking, Stored(asking) as stored:
            assert await move(asking, stored, "reader", "rewind", Target.parse("earliest"), None, "test")
        letter = await reader.taken()
        assert letter.payload == "poison"
        for hand in (worker, reader, publisher):
            await hand.close()
