"""When the answer to a question leaves: at once, or behind a record.

What is read from home rows may be told when everything submitted before is committed (shards.answering).  Where a shard has copies on
several sites that is not enough for retained messages, which are read without a record of whoever asks: a leader that was deposed, and has
not heard of it, would answer with what it had, beside the one that took newer messages.  So the question is kept until a record goes that
was submitted after it, is answered as of that record, and the answer leaves when that is committed.  A leader that took over before the
question had ended this one's log by then, so that record never commits, and nothing is said: whoever asked hangs up one day, and asks the
one who leads.  When nothing else is to be recorded an empty record goes, for all who wait.

There is no time after which a question is refused: it would be asked here again, and gateways go on without after some refusals.

Holds: at most one record that was made for questions is under way; while it is, those that come wait for the next record of any kind.
"""

from __future__ import annotations

from shards.answering import Answering
from shards.events import Effect, Send
from shards.frames import Query, Result, RetainedPage
from shards.telling import Telling


class Questions:
    def __init__(self, answering: Answering, telling: Telling, replicated: bool) -> None:
        """replicated: somebody else may lead this shard without our hearing of it."""
        self._answering = answering
        self._telling = telling
        self._replicated = replicated
        self._kept: list[tuple[int, Query]] = []
        self._made: int | None = None
        """The position of the record that was made for questions, while it is under way."""

    def asked(self, link: int, query: Query, watermark: int, elapsed_us: int) -> list[Effect]:
        if self._replicated and isinstance(query.ask, RetainedPage):
            self._kept.append((link, query))
            return []
        answer = Result(query.id, self._answering.answer(query.ask, watermark, elapsed_us))
        if not self._answering.waits(query.ask):
            return [Send(link, answer)]
        self._telling.tell(link, answer)
        return []

    @property
    def press(self) -> bool:
        """A record is wanted, if only for them."""
        return bool(self._kept) and self._made is None

    def submitting(self, position: int, watermark: int, elapsed_us: int, made_for_them: bool) -> None:
        """A record goes: what was asked before it is answered when it is committed."""
        for link, query in self._kept:
            self._telling.tell(link, Result(query.id, self._answering.answer(query.ask, watermark, elapsed_us)))
        self._kept.clear()
        if made_for_them:
            self._made = position

    def committed(self, position: int) -> None:
        if self._made is not None and self._made <= position:
            self._made = None
