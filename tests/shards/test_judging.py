"""Wills that are due and retained messages that are given out: may whoever left them behind still do that?"""

from __future__ import annotations

import pytest

from access.denials import Denial
from access.identity import ANONYMOUS, Identity
from access.rights import Right
from access.rules import CLOSED, OPEN, Access, compile_access
from access.rules_file import parse_rules
from shards.entries import Append
from shards.events import AccessChanged
from shards.frames import LOST, Connect, Connected, Disconnect, Live, Query, Result, Retain, RetainedMessages, RetainedPage, Will
from shards.messages import topic_of
from shards.rows import SOURCE
from tests.shards.harness import G, Harness, S, linked, publish

ANN = Identity("ann", "password")
BOB = Identity("bob", "jwt", ("guests",))
READER = 8


def rules(*denied: str, right: str = "publish") -> Access:
    """Everybody may do everything, but these users may not do this."""
    users = ", ".join(f"'{user}'" for user in denied)
    deny = f"[[rule]]\ndeny = ['{right}']\ntopics = ['#']\nusers = [{users}]\n" if denied else ""
    return compile_access(2, parse_rules(f"version = 1\n{deny}[[rule]]\nallow = ['all']\ntopics = ['#']\n"), claims=False, decides=False)


NAMED_ONLY = compile_access(
    2, parse_rules("version = 1\n[[rule]]\nallow = ['all']\ntopics = ['#']\nusers = ['ann', 'bob']\n"), claims=False, decides=False
)


def comes(h: Harness, client: bytes, who: Identity, expiry_s: int = 0, will: Will | None = None) -> int:
    (reply,) = h.ask(G, Connect(client, False, expiry_s, 5, will, False, who.user.encode(), who.pack()))
    assert isinstance(reply, Connected)
    return reply.conn


def wills(h: Harness) -> list[bytes]:
    return [live.topic for live in h.take(G, Live)]


def kept(h: Harness, topic_filter: bytes = b"#") -> list[bytes]:
    """Topics of the retained messages that are given out, page by page."""
    found: list[bytes] = []
    after = b""
    while True:
        h.receive(S, Query(9, RetainedPage(topic_filter, after, 2)))
        h.tick()
        (result,) = h.take(S, Result)
        assert isinstance(result.told, RetainedMessages)
        found += [topic_of(value) for value in result.told.values]
        after = result.told.next_after
        if not after:
            return found


# ---------------------------------------------------------------- wills


@pytest.mark.parametrize("how", ["at once", "after its delay", "with its session", "taken over"])
@pytest.mark.parametrize("crash", [False, True])
def test_a_will_is_asked_for_when_it_is_due(how: str, crash: bool) -> None:
    """CONNECT was permitted; whoever may not publish by now leaves nothing behind, others do."""
    h = linked()
    delay_s = 0 if how in ("at once", "taken over") else 60
    expiry_s = 30 if how == "with its session" else 3_600
    conns = {}
    for client, who in ((b"a", ANN), (b"b", BOB)):
        conns[client] = conn = comes(h, client, who, expiry_s, Will(client + b"/gone", 1, False, delay_s, b"\0bye"))
        if how in ("after its delay", "with its session"):
            h.ask(G, Disconnect(client, conn, LOST, None))
    if crash:
        h.reopen()
        h.link(G, "gateway", "g0:a")
        h.link(S, "session", "s0:a")
    h.core.handle(AccessChanged(rules("bob")))
    for client, who in ((b"a", ANN), (b"b", BOB)):
        if how == "at once":
            h.ask(G, Disconnect(client, conns[client], LOST, None))
        elif how == "taken over":
            comes(h, client, who, expiry_s)
    h.pass_time(61_000)
    assert wills(h) == [b"a/gone"]
    assert h.core.counters["wills_denied"] == 1 and h.core.denied() == [Denial(b"b", Right.PUBLISH, b"b/gone", 1)]


def test_a_retained_will_needs_the_right_to_retain() -> None:
    """Publishing alone is not enough."""
    h = linked()
    conn = comes(h, b"b", BOB, will=Will(b"b/gone", 1, True, 0, b"\0bye"))
    h.core.handle(AccessChanged(rules("bob", right="retain")))
    h.ask(G, Disconnect(b"b", conn, LOST, None))
    assert wills(h) == [] and kept(h) == []


def test_without_valid_rules_nothing_enters() -> None:
    """Rules are wanted and none can be read; and an identity that cannot be read is nobody's."""
    h = linked()
    conn = comes(h, b"a", ANN, will=Will(b"a/gone", 1, False, 0, b"\0"))
    h.core.handle(AccessChanged(CLOSED))
    h.ask(G, Disconnect(b"a", conn, LOST, None))
    h.core.handle(AccessChanged(rules()))
    (reply,) = h.ask(G, Connect(b"x", True, 0, 5, Will(b"x/gone", 1, False, 0, b"\0"), False, b"x", b"\xc1 no identity"))
    assert isinstance(reply, Connected)
    h.ask(G, Disconnect(b"x", reply.conn, LOST, None))
    assert wills(h) == [] and h.core.counters["wills_denied"] == 2


# ---------------------------------------------------------------- retained messages


def with_retained() -> Harness:
    """One of ann's, one of bob's, and one of somebody who did not say who he is."""
    h = linked()
    for client, who in ((b"a", ANN), (b"b", BOB), (b"c", ANONYMOUS)):
        conn = comes(h, client, who)
        h.ask(G, publish(client, conn, client + b"/1", client + b"/2", retain=1))
    return h


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("right", ["publish", "retain"])
def test_a_retained_message_is_given_out_while_its_publisher_may_publish_it(crash: bool, right: str) -> None:
    """Also when he is long gone; it is there again with the right.  What nobody is known to have published is the anonymous one's."""
    h = with_retained()
    everything = [each + number for each in (b"a", b"b", b"c") for number in (b"/1", b"/2")]
    assert kept(h) == everything
    if crash:
        h.reopen()
        h.link(G, "gateway", "g0:b")
        h.link(S, "session", "s0:b")
    h.core.handle(AccessChanged(rules("bob", right=right)))
    assert kept(h) == [b"a/1", b"a/2", b"c/1", b"c/2"] and kept(h, b"b/1") == [] and kept(h, b"b/+") == []
    assert h.core.counters["retained_withheld"] == 5
    h.core.handle(AccessChanged(NAMED_ONLY))
    assert kept(h) == [b"a/1", b"a/2", b"b/1", b"b/2"]
    h.core.handle(AccessChanged(OPEN))
    assert kept(h) == everything


def test_the_last_publisher_counts() -> None:
    """Each message has the identity of whoever published it, the anonymous one too; of one that is deleted nothing stays."""
    h = with_retained()
    anonymous, ann = comes(h, b"c", ANONYMOUS), comes(h, b"a", ANN)
    h.ask(G, publish(b"c", anonymous, b"b/1", retain=1))
    h.ask(G, publish(b"a", ann, b"b/2", b"c/1", retain=1))
    h.core.handle(AccessChanged(NAMED_ONLY))
    assert kept(h) == [b"a/1", b"a/2", b"b/2", b"c/1"]
    deleting = publish(b"a", ann, b"a/1", b"a/2", b"b/2", b"c/1", retain=1)._replace(bodies=[b"\0"] * 4)
    h.ask(G, deleting)
    assert kept(h) == [] and h.core._draft.scan(SOURCE, 9) == []


def test_an_identity_goes_with_its_message_to_another_shard() -> None:
    """Over the outbox, a crash of which it outlives, into the rows of the topic's home."""
    away = next(b"t%d" % number for number in range(100) if Harness(n_shards=2).core._slots.shard_of(b"t%d" % number) == 1)
    source = Harness(n_shards=2)
    source.link(G, "gateway", "g0:a")
    for client, who in ((b"a", ANN), (b"b", BOB), (b"c", ANONYMOUS)):
        if source.core._slots.shard_of(client) == 0:
            source.request(G, publish(client, comes(source, client, who), away, retain=1))
            source.tick()
            break
    else:
        raise AssertionError("nobody is at home here")
    source.forwarded.clear()
    source.reopen()
    source.link(G, "gateway", "g0:b")
    source.tick()
    (forward,) = source.forwarded
    assert [item[3] for item in forward.items] == [who.pack()]
    home = Harness(shard=1, n_shards=2)
    home.link(5, "shard", "shard-0:a")
    home.link(S, "session", "s0:a")
    home.ask(5, Retain(0, forward.items))
    home.core.handle(AccessChanged(rules("ann", "bob")))
    assert kept(home) == ([away] if who is ANONYMOUS else [])


def test_what_a_writer_retains_is_its_tokens() -> None:
    """Of the broker's own token nobody is asked; of another the identity counts."""
    h = linked()
    h.link(READER, "reader", "r0:a")
    token = Identity("pipeline/plant", "pipeline")
    for number, (topic, identity) in enumerate(((b"own", None), (b"token", token.pack())), start=1):
        h.ask(READER, Append(b"w", number, 0, 0, [b"c"], b"\3", [topic], [b"\0m"], identity))
    h.core.handle(AccessChanged(rules("pipeline/plant")))
    assert kept(h) == [b"own"]


def test_what_a_plugin_let_in_stays_until_a_rule_says_no() -> None:
    """A shard asks no plugin: what rules say nothing about was judged when it came."""
    h = linked()
    h.core.handle(AccessChanged(compile_access(2, None, claims=False, decides=True)))
    conns = {
        client: comes(h, client, who, will=Will(client + b"/gone", 1, True, 0, b"\0bye")) for client, who in ((b"a", ANN), (b"b", BOB))
    }
    text = "version = 1\n[[rule]]\ndeny = ['publish']\ntopics = ['b/#']\n"
    h.core.handle(AccessChanged(compile_access(3, parse_rules(text), claims=False, decides=True)))
    for client, conn in conns.items():
        h.ask(G, Disconnect(client, conn, LOST, None))
    assert wills(h) == [b"a/gone"] and kept(h) == [b"a/gone"]
