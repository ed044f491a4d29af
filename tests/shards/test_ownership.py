"""Whose a session and a connection are: the whole table of who comes for what, and that a refusal changes no byte of the store."""

from __future__ import annotations

from itertools import product

import pytest

from access.identity import Identity
from shards.engine import HOME_FAMILY
from shards.events import Adopted
from shards.frames import LOST, Connect, Connected, Disconnect, Live, Own, Owned, Superseded, Will
from shards.homes import Outcome
from shards.ids import EXPIRY_NEVER
from shards.ownership import NOT_YOURS
from shards.rows import META, SESSION, SLOT, SessionRow, client_key, pack_session, unpack_as
from shards.timers import WILL as WILL_TIMER
from shards.timers import Timer
from tests.shards.harness import G, Harness, S, linked

WILL = Will(b"w", 1, False, 0, b"\0gone")
LATER = Will(b"w", 1, False, 30, b"\0gone")
THERE = ("away", "live", "live will", "away will", "ephemeral", "memory", "never expires")


def entry(user: str, clean: bool = False, expiry_s: int = 60, version: int = 5, will: Will | None = None, **more: bool) -> Connect:
    who = Identity(user, "password").pack() if user else b""
    return Connect(b"c", clean, expiry_s, version, will, user=user.encode(), identity=who, peer="10.0.0.1", **more)


def stored(h: Harness) -> dict[bytes, bytes]:
    """The rows of the home, without those that count frames and records."""
    return {key: value for key, value in h.engine.scan(HOME_FAMILY, b"", b"\xff" * 64, 10_000) if key[:1] not in (SLOT, META)}


def come(h: Harness, connect: Connect, link: int = G) -> Connected:
    (reply,) = h.ask(link, connect)
    assert isinstance(reply, Connected)
    return reply


def make(owner: str, there: str) -> tuple[Harness, Connected]:
    """A shard with a session, or a connection, of this owner."""
    h = linked()
    if there == "memory":
        (owned,) = h.ask(S, Own())
        assert isinstance(owned, Owned)
    expiry_s = {"ephemeral": 0, "never expires": EXPIRY_NEVER}.get(there, 60)
    will = {"live will": WILL, "away will": LATER}.get(there)
    made = come(h, entry(owner, expiry_s=expiry_s, will=will, memory=there == "memory"))
    if there.startswith("away"):
        h.ask(G, Disconnect(b"c", made.conn, LOST, None))
    return h, made


@pytest.mark.parametrize("there", THERE)
@pytest.mark.parametrize(("owner", "user"), list(product(("ann", ""), ("bob", "", "ann"))))
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("crashed", [False, True])
def test_nobody_else_gets_a_session_or_a_connection(
    owner: str, user: str, there: str, clean: bool, version: int, crashed: bool
) -> None:  # fmt: skip
    """0x85 and not a byte of the store is another, no will comes, and the one that is there goes on; the owner gets it."""
    h, made = make(owner, there)
    if crashed:
        h.reopen()
        h.link(G, "gateway", "g0:a")
        h.link(S, "session", "s0:a")
    h.take(G, Live)
    before = stored(h)
    reply = come(h, entry(user, clean, 0 if clean else 60, version))
    if user == owner:
        assert reply.conn > made.conn and not reply.refused
        return
    assert reply == Connected(0, False, 0, 0, reply.owner, NOT_YOURS)
    assert stored(h) == before and not h.take(G, Superseded) and not h.take(G, Live) and not h.notices
    again = come(h, entry(owner))
    assert again.conn == made.conn + 256, "no number was taken"
    assert again.present == (there != "ephemeral" and not (there == "memory" and again.session_id != made.session_id))


def test_a_session_that_has_expired_is_nobodys() -> None:
    """Due is over, whether or not a timer has come to write that down."""
    h, made = make("ann", "away")
    h.tick(59_000)
    assert come(h, entry("bob")).refused == NOT_YOURS
    h.tick(1_001, sync=False)
    assert come(h, entry("bob")).conn > made.conn


def test_a_connection_whose_gateway_is_lost_is_nobodys() -> None:
    """It ended when that was last heard; its session is still its owner's."""
    for expiry_s, refused in ((0, 0), (600, NOT_YOURS)):
        h = linked()
        come(h, entry("ann", expiry_s=expiry_s))
        h.unlink(G)
        h.link(3, "gateway", "g0:b")
        assert come(h, entry("bob"), link=3).refused == refused


@pytest.mark.parametrize("user", ["", "ann"])
@pytest.mark.parametrize("clean", [False, True])
def test_a_session_from_before_is_of_who_comes_first(user: str, clean: bool) -> None:
    """Its row says of nobody; from then on it says whose it is, and the log has it."""
    h, made = make("", "away")
    key = client_key(SESSION, b"c")
    row = unpack_as(SessionRow, h.engine.get(HOME_FAMILY, key) or b"")
    h.engine.write([(HOME_FAMILY, key, pack_session(row._replace(user=None)))])
    reply = come(h, entry(user, clean))
    assert reply.present == (not clean) and reply.conn > made.conn
    assert unpack_as(SessionRow, h.engine.get(HOME_FAMILY, key) or b"").user == user.encode()
    assert h.notices == ([Adopted(b"c", b"ann")] if user and not clean else [])
    assert come(h, entry("bob", clean)).refused == NOT_YOURS


@pytest.mark.parametrize("there", ["away", "live", "ephemeral"])
def test_sessions_of_the_anonymous_one_are_given_away_only_where_that_is_wanted(there: str) -> None:
    """access.adopt_anonymous: to a user, once; the anonymous one does not get it back, and nobody gets another user's."""
    h, made = make("", there)
    assert come(h, entry("ann")).refused == NOT_YOURS
    reply = come(h, entry("ann", adopt=True))
    assert reply.conn > made.conn and reply.present == (there != "ephemeral")
    assert h.notices == ([Adopted(b"c", b"ann")] if reply.present else [])
    assert come(h, entry("", adopt=True)).refused == come(h, entry("bob", adopt=True)).refused == NOT_YOURS


@pytest.mark.parametrize("how", ["lost", "taken over", "later", "session ended"])
def test_a_will_that_comes_says_whose_it_is(how: str) -> None:
    """Whoever judges it when nobody is connected has the identity."""
    h, made = make("ann", "live will" if how in ("lost", "taken over") else "away will")
    homes, draft, out, age_ms = h.core._homes, h.core._draft, Outcome(), h.now_ms
    if how == "lost":
        homes.disconnect(draft, b"c", made.conn, LOST, None, age_ms, out)
    elif how == "later":
        homes.fire(draft, Timer(age_ms, WILL_TIMER, b"c"), age_ms, 100, out)
    else:
        homes.connect(draft, entry("ann", clean=how == "session ended"), "g0:a", age_ms, out)
    assert [will.identity for will in out.wills] == [Identity("ann", "password").pack()]
