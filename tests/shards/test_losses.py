"""Loss rows in their home: their session's owner writes them, and gets back the one that it may change."""

from __future__ import annotations

from shards.frames import OLD_TOKEN, TAKEN, Commit, CommitDone, Load, Loaded, Query, Result
from shards.rows import LOSS, LOSSES_PER_SESSION_MAX, PROGRESS, ProgressRow, pack_progress, u64
from tests.shards.ended import owner, rows
from tests.shards.harness import G, Harness, S, connect, linked


def loaded(h: Harness) -> list[tuple[bytes, bytes, bytes]]:
    h.receive(S, Query(3, Load(b"c")))
    h.tick()
    (result,) = h.take(S, Result)
    assert isinstance(result.told, Loaded)
    return [(family, suffix, value) for family, suffix, value in result.told.rows]


def test_of_a_hundred_losses_only_the_last_is_loaded() -> None:
    """The others are never changed; the row of progress says how many there are."""
    h = linked()
    token = owner(h)
    conn = connect(h, b"c", expiry_s=600)
    for count in (LOSSES_PER_SESSION_MAX - 1, LOSSES_PER_SESSION_MAX):
        progress = pack_progress(ProgressRow(1, 0, 1, 0, 0, 1, 0, [], count))
        puts = [(LOSS, u64(number), b"loss %d" % number) for number in range(1, count + 1)]
        assert h.ask(S, Commit(token, b"c", conn.session_id, conn.conn, [*puts, (PROGRESS, b"", progress)], [])) == [CommitDone(TAKEN)]
        assert rows(h.engine)["x"] == count
        last = [(LOSS, u64(count), b"loss %d" % count)] if count == LOSSES_PER_SESSION_MAX else []
        assert loaded(h) == [(PROGRESS, b"", progress), *last]


def test_a_loss_of_somebody_who_is_not_the_owner_is_refused() -> None:
    """As everything that he commits."""
    h = linked()
    token = owner(h)
    conn = connect(h, b"c", expiry_s=600)
    owner(h)
    commit = Commit(token, b"c", conn.session_id, conn.conn, [(LOSS, u64(1), b"x")], [])
    assert h.ask(S, commit) == [CommitDone(OLD_TOKEN)] and "x" not in rows(h.engine)


def test_losses_go_with_their_session() -> None:
    """A client that begins anew has lost nothing."""
    h = linked()
    token = owner(h)
    conn = connect(h, b"c", expiry_s=600)
    puts = [(LOSS, u64(number), b"x") for number in range(1, LOSSES_PER_SESSION_MAX + 1)]
    h.ask(S, Commit(token, b"c", conn.session_id, conn.conn, puts, []))
    assert rows(h.engine)["x"] == LOSSES_PER_SESSION_MAX
    connect(h, b"c", expiry_s=600, clean=True, link=G)
    h.settle()
    assert "x" not in rows(h.engine)
