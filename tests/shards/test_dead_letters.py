"""Dead letters of a session enter the log in the record of its commit, whether somebody wants them or not."""

from __future__ import annotations

from shards.entries import Letter
from shards.frames import OLD_TOKEN, TAKEN, Commit, CommitDone, Own, Owned, Place
from shards.messages import header
from shards.rows import PROGRESS, ProgressRow, pack_progress, unpack_row
from tests.shards.harness import S, connect, linked, poll

LETTER = Letter(b"dead", 1, b"\0payload")
ROW = (PROGRESS, b"", b"row")


def test_a_letter_is_stored_though_nobody_has_subscribed_and_once() -> None:
    """In one record with the rows: what a power cut leaves is both, or nothing."""
    h = linked()
    session_id = connect(h, b"c", expiry_s=60).session_id
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    h.request(S, Commit(owned.token, b"c", session_id, 0, [ROW], [], [LETTER]))
    h.tick(sync=False)
    assert len(h.uncommitted) == 1, "rows and letter are one record"
    h.commit()
    polled = poll(h, b"dead", Place(0))
    (value,) = [value for segment in polled.segments for value in segment.values]
    flags, _, publisher, topic, body = header(value)
    assert (flags & 3, publisher, topic, body) == (1, b"", b"dead", b"\0payload")


def test_with_a_commit_that_is_refused_no_letter_is_stored() -> None:
    """Whoever is the owner now does it by the rows."""
    h = linked()
    session_id = connect(h, b"c", expiry_s=60).session_id
    (owned,) = h.ask(S, Own())
    assert isinstance(owned, Owned)
    for token, code in ((owned.token - 1, OLD_TOKEN), (owned.token, TAKEN)):
        letters = [LETTER] if code else []
        assert h.ask(S, Commit(token, b"c", session_id, 0, [ROW], [], letters)) == [CommitDone(code)]
    assert poll(h, b"dead", Place(0)).segments == []


def test_a_row_of_progress_has_only_what_is_there() -> None:
    """So most are as they were before there was such a count; and every one is read again."""
    plain = ProgressRow(1, 2, 3, 4, 5, 6, 7, [8])
    for row, fields in (
        (plain, 8), (plain._replace(losses=1), 9), (plain._replace(untold=True, losses=1), 10), (plain._replace(again=[1, 3, 2]), 11),
    ):  # fmt: skip
        found = unpack_row(pack_progress(row))
        assert len(found) == fields and ProgressRow(*found) == row
