"""Who may write the rows of sessions: the owner token, and commits under it.

The shard issues tokens that only grow, each committed before it is used.  A commit with an older token, for a session that
is gone, or caused by a connection older than one the owner has already committed for, is refused inside the record that would
have held it.  What the owner counted for a connection before it heard of the next one is still good: a client that
disconnects and comes back at once must not lose the acknowledgements it sent in between.

The work of ended subscriptions is told to the holder in parts, so that what it has under way is bounded, however many
sessions end at once; the rows are the queue, and what was told is only remembered so that it is not told twice.

Holds (see check):
1. rows of a session are written only by the holder of the newest token;
2. at most WORK_UNDER_WAY_MAX routes are told and not reported as gone, apart from those of one record that ends sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shards.deliveries import Deliveries
from shards.draft import Draft
from shards.ending import Work
from shards.engine import HOME_FAMILY, Engine
from shards.frames import NO_SESSION, OLD_CONN, OLD_TOKEN, TAKEN, Commit, CommitDone, Load, Loaded, Owned, Will, WorkDone, WorkTaken
from shards.homes import FiredWill, Homes, Outcome
from shards.ids import token_of_sub
from shards.judging import NOT_JUDGED
from shards.rows import (
    COMMITTED_BY_OWNER,
    LOSS,
    LOSSES_PER_SESSION_MAX,
    OUTCOME,
    OWNER,
    PLACE,
    PROGRESS,
    RANGE,
    SUBSCRIPTION,
    TO_COPY,
    WORK,
    ProgressRow,
    client_key,
    pack_row,
    read_u64,
    split_client_key,
    successor,
    u64,
    unpack_as,
    unpack_row,
)  # fmt: skip

WORK_UNDER_WAY_MAX = 4_000
WORK_PAGE = 1_000
_LOADED = (SUBSCRIPTION, PLACE, RANGE, TO_COPY, PROGRESS)
_BUNDLED = frozenset((PLACE, RANGE, PROGRESS))


class Owners:
    def __init__(self, engine: Engine, homes: Homes, deliveries: Deliveries) -> None:
        self._homes = homes
        self._deliveries = deliveries
        row = engine.get(HOME_FAMILY, OWNER)
        fields = unpack_row(row) if row else (0, "")
        self.token: int = fields[0]
        self.holder: str = fields[1]
        self._under_way: dict[tuple[bytes, int], None] = {}
        self._fresh: list[Work] = []
        self._behind = True
        """Work rows may be there that were not told.  `_again`: some were made behind the place up to which we have looked."""
        self._again = False
        self._after = WORK
        self._owned_now = False

    def own(self, draft: Draft, name: str, groups: Sequence[Sequence[Any]] = ()) -> Owned:
        self.token += 1
        self.holder = name
        draft.put(OWNER, pack_row((self.token, name)))
        self.look_again()
        self._owned_now = True
        return Owned(self.token, self._page(draft), groups)

    # ------------------------------------------------------------------ work

    def look_again(self) -> None:
        """Everything may have to be told, also what was told before: told twice it does no harm."""
        self._under_way.clear()
        self._fresh = []
        self._behind, self._again, self._after = True, False, WORK

    def ended(self, work: list[Work]) -> None:
        """These work rows were put just now."""
        if self._behind or len(self._under_way) >= WORK_UNDER_WAY_MAX:
            self._again = self._behind
            self._behind = True
            return
        self._fresh.extend(work)
        self._under_way.update(((client, sub_id), None) for client, sub_id, _ in work)

    @property
    def has_work(self) -> bool:
        """Something is to be told to the holder."""
        # Not in the record of the token itself: what is told would arrive before the answer that brings the token.
        return not self._owned_now and (bool(self._fresh) or (self._behind and len(self._under_way) < WORK_UNDER_WAY_MAX))

    def record_ends(self) -> None:
        self._owned_now = False

    def to_tell(self, draft: Draft) -> list[Work]:
        fresh, self._fresh = self._fresh, []
        if self._behind and len(self._under_way) < WORK_UNDER_WAY_MAX:
            fresh += self._page(draft)
        return fresh

    def _page(self, draft: Draft) -> list[Work]:
        """The next work rows.  A subscription that this owner is just adding has its own row beside the work row, and is the
        owner's business."""
        rows = draft.scan_range(self._after, successor(WORK), WORK_PAGE)
        if len(rows) < WORK_PAGE:
            self._behind, self._again, self._after = self._again, False, WORK
        else:
            self._after = rows[-1][0] + b"\x00"
        found: list[Work] = []
        for key, value in rows:
            client, suffix = split_client_key(key)
            sub_id = read_u64(suffix)
            if (client, sub_id) in self._under_way:
                continue
            if token_of_sub(sub_id) == self.token & 0xFFFFFFFF and draft.get(client_key(SUBSCRIPTION, client, suffix)) is not None:
                continue
            found.append((client, sub_id, unpack_row(value)[0]))
            self._under_way[client, sub_id] = None
        return found

    def unknown(self, draft: Draft, routes: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Those of which no row knows.  Ids are never used again, and a row is there before its route, so they stay unknown."""
        return [
            (sub_id, client)
            for sub_id, client in routes
            if draft.get(client_key(SUBSCRIPTION, client, u64(sub_id))) is None and draft.get(client_key(WORK, client, u64(sub_id))) is None
        ]

    def commit(self, draft: Draft, entry: Commit, out: Outcome, many: bool) -> CommitDone:
        """many: of many sessions in one record; of those that have been given something, and nothing else, this is written together."""
        families = [family for family, _, _ in entry.puts] if many and not draft.bundles_full else []
        together = len(families) > 1 and _BUNDLED.issuperset(families)
        if entry.token != self.token:
            return CommitDone(OLD_TOKEN)
        session = self._homes.session(draft, entry.client)
        if session is None or session.session_id != entry.session_id:
            return CommitDone(NO_SESSION)
        if entry.conn and not self._homes.may_commit(entry.client, entry.conn):
            return CommitDone(OLD_CONN)
        if self._deliveries.may_not_leave(entry.client, entry.puts):
            return CommitDone(OLD_CONN)
        for family, suffix, value in entry.puts:
            if family == OUTCOME:
                self._deliveries.outcome(draft, entry.client, suffix, value)
                continue
            assert family in COMMITTED_BY_OWNER, f"commit of family {family!r} by {self.holder}"
            if together:
                draft.bundle(client_key(family, entry.client, suffix), value)
            else:
                draft.put(client_key(family, entry.client, suffix), value)
            if family == SUBSCRIPTION:
                self._deliveries.subscribed(draft, entry.client, suffix, value)
        for family, suffix in entry.deletes:
            assert family in COMMITTED_BY_OWNER, f"commit of family {family!r} by {self.holder}"
            draft.delete(client_key(family, entry.client, suffix))
            if family == SUBSCRIPTION:
                self._deliveries.unsubscribed(draft, entry.client, suffix)
        for topic, qos, body in entry.letters:
            out.wills.append(FiredWill(b"", Will(topic, qos, False, 0, body), NOT_JUDGED, kept=True))
        return CommitDone(TAKEN)

    def work_done(self, draft: Draft, entry: WorkDone) -> WorkTaken:
        if entry.token != self.token:
            return WorkTaken(OLD_TOKEN)
        for client, sub_id in entry.done:
            draft.delete(client_key(WORK, client, u64(sub_id)))
            self._under_way.pop((client, sub_id), None)
        return WorkTaken(TAKEN)

    def load(self, draft: Draft, ask: Load, watermark: int) -> Loaded:
        client = ask.client
        session = self._homes.session(draft, client)
        rows: list[tuple[bytes, bytes, bytes]] = []
        if session is not None:
            for family in _LOADED:
                for key, value in draft.scan(client_key(family, client), 1_000_000):
                    rows.append((family, split_client_key(key)[1], value))
            if rows and rows[-1][0] == PROGRESS and unpack_as(ProgressRow, rows[-1][2]).losses >= LOSSES_PER_SESSION_MAX:
                # Of the losses only the last row that there can be is ever changed.
                last = u64(LOSSES_PER_SESSION_MAX)
                rows.append((LOSS, last, draft.get(client_key(LOSS, client, last)) or b""))
            rows += self._deliveries.rows_of(draft, client)
        return Loaded(self._homes.newest_conn(draft, client), session.session_id if session else 0, watermark, rows)
