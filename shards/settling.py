"""What a change of homes causes: wills that enter the log, and who is told of it when the record is committed.

Everything here goes into the record that is being made, or is told behind it.
"""

from __future__ import annotations

from shards.deliveries import Deliveries
from shards.draft import Draft
from shards.frames import REFUSED_QUOTA, Delay, GroupMade, Live, Publish, Published, Superseded
from shards.homes import Homes, Outcome
from shards.judging import Judging
from shards.owners import Owners
from shards.publishing import Publishing
from shards.telling import Telling


class Settling:
    def __init__(
        self, judging: Judging, publishing: Publishing, telling: Telling, owners: Owners, homes: Homes, deliveries: Deliveries
    ) -> None:  # fmt: skip
        self._judging = judging
        self._publishing = publishing
        self._telling = telling
        self._owners = owners
        self._homes = homes
        self._deliveries = deliveries

    def settle(self, draft: Draft, out: Outcome, wall_ms: int, made: GroupMade | None = None) -> int:
        """The outbox position that an answer has to wait for.  made: a shared group that is new, too."""
        outbox = 0
        for client, will, identity, delayed, kept in out.wills:
            if not self._judging.may_enter(client, identity, will.retain, will.topic, delayed):
                continue
            flags = self._publishing.entering_flags(will.qos, will.retain, will.topic)
            outbox = max(outbox, self._publishing.enter(draft, client, identity, flags, will.topic, will.body, wall_ms, kept)[1])
            self._telling.tell_subscribers(Live(client, flags, will.topic, will.body))
        for gateway, connections in out.superseded.items():
            link = self._telling.link_of(gateway)
            if link is not None:
                self._telling.tell(link, Superseded(connections))
        if out.work:
            self._owners.ended(out.work)
        link = self._telling.link_of_successor(self._owners.holder) if made is not None else None
        if made is not None and link is not None:
            self._telling.tell(link, made)
        return outbox

    def refused(self, draft: Draft, entry: Publish | Delay, published: Published, age_ms: int, wall_ms: int) -> int:
        """If something was refused for the quota, which may end the connection; the outbox position to wait for."""
        if REFUSED_QUOTA not in published.codes:
            return 0
        out = Outcome()
        self._homes.refused(draft, entry.client, entry.conn, age_ms, out)
        return self.settle(draft, out, wall_ms)

    def tell_groups(self) -> None:
        """At the end of a turn: what members of shared groups were given, and what became of it."""
        if not self._deliveries.has_news:
            return
        given, news = self._deliveries.turn()
        link = self._telling.link_of_successor(self._owners.holder) if given else None
        if link is not None:
            for one in given:
                self._telling.tell(link, one)
        for sender, told in news:
            to = self._telling.link_of(sender)
            if to is not None:
                self._telling.tell(to, told)
