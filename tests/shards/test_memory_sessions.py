"""Sessions in memory as their home knows them: a row with the token of the actor that has them, incoming ids, timers, no routes."""

from __future__ import annotations

import pytest

from shards.frames import (
    LOST,
    NORMAL,
    REPEATED,
    Connect,
    Connected,
    Disconnect,
    Live,
    Load,
    Loaded,
    Own,
    Owned,
    Published,
    Query,
    Result,
    Will,
)
from shards.rows import INCOMING, SESSION, client_key
from tests.shards.harness import G, Harness, S, linked, publish


def owned() -> tuple[Harness, int]:
    h = linked()
    (reply,) = h.ask(S, Own())
    assert isinstance(reply, Owned)
    return h, reply.token


def connect(h: Harness, expiry_s: int = 60, clean: bool = False, memory: bool = True, will: Will | None = None) -> Connected:
    (reply,) = h.ask(G, Connect(b"c", clean, expiry_s, 5, will, memory))
    assert isinstance(reply, Connected)
    return Connected(reply.conn, reply.present, reply.session_id, reply.memory)


def test_the_wish_decides_for_a_new_session_only() -> None:
    """One that is there stays what it is; clean start makes a new one."""
    h, token = owned()
    first = connect(h)
    assert first == Connected(first.conn, False, first.conn, token)
    again = connect(h, memory=False)
    assert again == Connected(again.conn, True, first.conn, token)
    durable = connect(h, clean=True, memory=False)
    assert durable == Connected(durable.conn, False, durable.conn, 0)
    again = connect(h, memory=True)
    assert again == Connected(again.conn, True, durable.conn, 0)
    ephemeral = connect(h, expiry_s=0, clean=True)
    assert ephemeral == Connected(ephemeral.conn, False, 0, 0)


def test_a_new_owner_ends_the_sessions_of_the_older_one() -> None:
    """Session present 0, and an id that was open then is free: a message under it is a new one."""
    h, token = owned()
    old = connect(h)
    assert h.ask(G, publish(b"c", old.conn, b"t", qos=2, ids=[7], keep=True)) == [Published(False, b"\x01")]
    assert h.ask(G, publish(b"c", old.conn, b"t", qos=2, ids=[7], keep=True)) == [Published(False, bytes([REPEATED]))]
    h.ask(S, Own())
    new = connect(h)
    assert new == Connected(new.conn, False, new.conn, token + 1)
    assert h.ask(G, publish(b"c", new.conn, b"t", qos=2, ids=[7], keep=True)) == [Published(False, b"\x01")]


def test_a_session_made_while_nobody_owned_is_lost_too() -> None:
    """There is no memory in which it could be."""
    h = linked()
    early = connect(h)
    assert early.memory == -1 and not early.present
    h.ask(S, Own())
    late = connect(h)
    assert not late.present and late.memory == 1


def test_a_durable_session_survives_a_new_owner() -> None:
    """It is in the rows."""
    h, _ = owned()
    first = connect(h, memory=False)
    h.ask(S, Own())
    again = connect(h, memory=True)
    assert again == Connected(again.conn, True, first.conn, 0)


def test_it_expires_like_every_session_and_leaves_no_row() -> None:
    """With its incoming ids; the will that waits longer comes at its end."""
    h, _ = owned()
    conn = connect(h, expiry_s=60, will=Will(b"w", 1, False, 100, b"\0gone")).conn
    h.ask(G, publish(b"c", conn, b"t", qos=2, ids=[7], keep=True))
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    assert h.engine.scan(0, client_key(INCOMING, b"c"), client_key(INCOMING, b"c") + b"\xff", 10)
    h.take(S, Live)
    h.pass_time(59_000)
    assert h.engine.get(0, client_key(SESSION, b"c")) is not None
    assert h.take(S, Live) == []
    h.pass_time(2_000)
    assert h.engine.get(0, client_key(SESSION, b"c")) is None
    assert not h.engine.scan(0, client_key(INCOMING, b"c"), client_key(INCOMING, b"c") + b"\xff", 10)
    assert h.take(S, Live) == [Live(b"c", 2, b"w", b"\0gone")]


def test_disconnect_with_expiry_0_ends_it() -> None:
    """This is also how a gateway ends what the actor says that it has not."""
    h, token = owned()
    conn = connect(h).conn
    h.ask(G, Disconnect(b"c", conn, NORMAL, 0))
    again = connect(h)
    assert again == Connected(again.conn, False, again.conn, token)


def test_it_has_no_rows_to_load() -> None:
    """What a session actor has is nowhere else."""
    h, _ = owned()
    made = connect(h)
    h.receive(S, Query(1, Load(b"c")))
    h.tick()
    h.commit()
    (result,) = h.take(S, Result)
    assert isinstance(result.told, Loaded) and (result.told.session_id, result.told.rows) == (made.conn, [])


@pytest.mark.parametrize("role", [G, S])
def test_a_will_is_told_to_all_who_have_live_subscribers(role: int) -> None:
    """Gateways and session actors."""
    h, _ = owned()
    conn = connect(h, will=Will(b"w", 1, False, 0, b"\0gone")).conn
    h.ask(G, Disconnect(b"c", conn, LOST, None))
    assert h.take(role, Live) == [Live(b"c", 2, b"w", b"\0gone")]
