"""Sessions with every kind of row, and what is left of them."""

from __future__ import annotations

from collections import Counter

from shards.engine import HOME_FAMILY, Engine
from shards.frames import (
    TAKEN,
    Commit,
    CommitDone,
    Connected,
    Own,
    Owned,
    Route,
    Work,
    WorkDone,
)  # fmt: skip
from shards.rows import ACTIVE, LOSS, PLACE, PROGRESS, RANGE, SUBSCRIPTION, TO_COPY, SubscriptionRow, pack_subscription, u64
from tests.shards.harness import G, Harness, S, publish

KEPT_MS = 600_000
"""How long the row of a connection is kept."""


def rows(engine: Engine) -> dict[str, int]:
    """How many rows of each kind there are, without those that a store has from its first moment and those of links."""
    keys = [key for key, _ in engine.scan(HOME_FAMILY, b"", b"\xff" * 8, 1 << 30)]
    return dict(Counter(chr(key[0]) for key in keys if key[:1] not in b"nmgoz"))


def own(h: Harness) -> Owned:
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    return owned


def owner(h: Harness) -> int:
    return own(h).token


def fill(h: Harness, client: bytes, connected: Connected, token: int, subscriptions: int, first: int = 1) -> list[int]:
    """Every kind of row that a session may have, and the routes of its subscriptions."""
    subs = list(range(first, first + subscriptions))
    row = pack_subscription(SubscriptionRow(b"t", 1, 0, 0, ACTIVE, []))
    puts = [(SUBSCRIPTION, u64(sub), row) for sub in subs]
    puts += [(PLACE, u64(sub) + b"\0", b"p") for sub in subs]
    puts += [(RANGE, u64(1), b"r"), (PROGRESS, b"", b"q"), (LOSS, u64(1), b"x")]
    puts += [(TO_COPY, u64(first), b"v")]
    commit = Commit(token, client, connected.session_id, connected.conn, puts, [])
    assert h.ask(S, commit) == [CommitDone(TAKEN)]
    h.ask(S, Route([(sub, b"t") for sub in subs], [], [client] * len(subs)))
    h.ask(G, publish(client, connected.conn, b"t", qos=2, ids=[9], keep=True))
    return subs


def work_through(h: Harness, token: int, first: list[tuple[bytes, int, bytes]] | None = None) -> list[int]:
    """What the owner does with its work: the routes go, and it says so."""
    done: list[int] = []
    items = list(first or [])
    while items or (items := [item for work in h.take(S, Work) for item in work.work]):
        h.ask(S, Route([], [(sub, topic_filter) for _, sub, topic_filter in items]))
        h.ask(S, WorkDone(token, [(client, sub) for client, sub, _ in items]))
        done += [sub for _, sub, _ in items]
        items = []
        h.settle()
    return done
