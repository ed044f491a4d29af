"""Who has published each retained message: rows of its topic's home beside the message, because the message does not say it.

Of what the anonymous one published there is no row, nor of what was there before anybody was asked who he is.

    retained message put -> row put, or erased -> message deleted: row erased

Holds: a row is of the message that is there; the identity of its publisher, packed, or shards.judging.NOT_JUDGED.
"""

from __future__ import annotations

from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.rows import SOURCE, pack_row, successor, unpack_row

ANONYMOUS = b""


class Sources:
    def __init__(self, engine: Engine) -> None:
        self._any = bool(engine.scan(HOME_FAMILY, SOURCE, successor(SOURCE), 1))
        """There are, or were, rows: where nobody ever says who he is, nothing has to be erased."""

    def put(self, draft: Draft, topic: bytes, identity: bytes | None) -> None:
        if identity == ANONYMOUS:
            self.erase(draft, topic)
            return
        self._any = True
        draft.put(SOURCE + topic, pack_row((identity,)))

    def erase(self, draft: Draft, topic: bytes) -> None:
        if self._any:
            draft.delete(SOURCE + topic)

    def of(self, draft: Draft, topic: bytes) -> bytes | None:
        row = draft.get(SOURCE + topic) if self._any else None
        identity: bytes | None = unpack_row(row)[0] if row is not None else ANONYMOUS
        return identity
