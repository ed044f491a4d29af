"""Who may write the rows of sessions: the owner token, and commits under it.

The shard issues tokens that only grow, each committed before it is used.  A commit with an older token, for a session that
is gone, or caused by a connection older than one the owner has already committed for, is refused inside the record that would
have held it.  What the owner counted for a connection before it heard of the next one is still good: a client that
disconnects and comes back at once must not lose the acknowledgements it sent in between.

Holds: rows of a session are written only by the holder of the newest token.
"""

from __future__ import annotations

from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.frames import NO_SESSION, OLD_CONN, OLD_TOKEN, TAKEN, Commit, CommitDone, Load, Loaded, Owned, WorkDone, WorkTaken
from shards.homes import Homes
from shards.rows import (
    COMMITTED_BY_OWNER,
    OWNER,
    PLACE,
    PROGRESS,
    RANGE,
    SUBSCRIPTION,
    WORK,
    client_key,
    pack_row,
    read_u64,
    split_client_key,
    u64,
    unpack_row,
)  # fmt: skip

WORK_TOLD_MAX = 100_000
_LOADED = (SUBSCRIPTION, PLACE, RANGE, PROGRESS)


class Owners:
    def __init__(self, engine: Engine, homes: Homes) -> None:
        self._homes = homes
        row = engine.get(HOME_FAMILY, OWNER)
        fields = unpack_row(row) if row else (0, "")
        self.token: int = fields[0]
        self.holder: str = fields[1]

    def own(self, draft: Draft, name: str) -> Owned:
        self.token += 1
        self.holder = name
        draft.put(OWNER, pack_row((self.token, name)))
        work: list[tuple[bytes, int, bytes]] = []
        for key, value in draft.scan(WORK, WORK_TOLD_MAX):
            client, suffix = split_client_key(key)
            work.append((client, read_u64(suffix), unpack_row(value)[0]))
        return Owned(self.token, work)

    def work_left(self, draft: Draft) -> list[tuple[bytes, int, bytes]]:
        """Routes of ended subscriptions that are not known to be gone: told again to an owner whose link was away.

        A subscription that is just being added has its own row beside the work row, and is the owner's business.
        """
        work: list[tuple[bytes, int, bytes]] = []
        for key, value in draft.scan(WORK, WORK_TOLD_MAX):
            client, suffix = split_client_key(key)
            if draft.get(client_key(SUBSCRIPTION, client, suffix)) is None:
                work.append((client, read_u64(suffix), unpack_row(value)[0]))
        return work

    def commit(self, draft: Draft, entry: Commit) -> CommitDone:
        if entry.token != self.token:
            return CommitDone(OLD_TOKEN)
        session = self._homes.session(draft, entry.client)
        if session is None or session.session_id != entry.session_id:
            return CommitDone(NO_SESSION)
        if entry.conn and not self._homes.may_commit(entry.client, entry.conn):
            return CommitDone(OLD_CONN)
        for family, suffix, value in entry.puts:
            assert family in COMMITTED_BY_OWNER, f"commit of family {family!r} by {self.holder}"
            draft.put(client_key(family, entry.client, suffix), value)
        for family, suffix in entry.deletes:
            assert family in COMMITTED_BY_OWNER, f"commit of family {family!r} by {self.holder}"
            draft.delete(client_key(family, entry.client, suffix))
        return CommitDone(TAKEN)

    def work_done(self, draft: Draft, entry: WorkDone) -> WorkTaken:
        if entry.token != self.token:
            return WorkTaken(OLD_TOKEN)
        for client, sub_id in entry.done:
            draft.delete(client_key(WORK, client, u64(sub_id)))
        return WorkTaken(TAKEN)

    def load(self, draft: Draft, ask: Load, watermark: int) -> Loaded:
        client = ask.client
        session = self._homes.session(draft, client)
        rows: list[tuple[bytes, bytes, bytes]] = []
        if session is not None:
            for family in _LOADED:
                for key, value in draft.scan(client_key(family, client), 1_000_000):
                    rows.append((family, split_client_key(key)[1], value))
        return Loaded(self._homes.newest_conn(draft, client), session.session_id if session else 0, watermark, rows)
