"""Who owns the sessions of this home after whom: what session actors are told of it, and of the work that the owner has.

    linked -> Own: the holder -> somebody else has said Own: told that it is replaced -> the holder has gone: told to ask for the next token

Holds: only the holder, or its successor once it is gone, is told of work; whoever is linked under an older token hears that it is older.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shards.draft import Draft
from shards.frames import Owned, Work
from shards.owners import Owners
from shards.telling import Telling


class Succession:
    def __init__(self, owners: Owners, telling: Telling) -> None:
        self._owners = owners
        self._telling = telling

    def own(self, draft: Draft, name: str, groups: Sequence[Sequence[Any]]) -> Owned:
        former = self._owners.holder
        owned = self._owners.own(draft, name, groups)
        if former != name:
            self._tell_replaced(self._telling.link_of(former))
        return owned

    def linked(self, link: int, role: str, name: str) -> None:
        holder = self._owners.holder
        if link == self._telling.link_of_successor(holder):
            # What was pushed while the link was away is lost.
            self._owners.look_again()
        elif role == "session" and name.partition(":")[0] == holder.partition(":")[0]:
            self._tell_replaced(link)

    def lost(self, name: str) -> None:
        if name == self._owners.holder:
            self._tell_replaced(self._telling.link_of_successor(name), left=True)

    def tell_work(self, draft: Draft) -> None:
        """At the end of a turn."""
        if self._owners.has_work:
            link = self._telling.link_of_successor(self._owners.holder)
            work = self._owners.to_tell(draft) if link is not None else []
            if link is not None and work:
                self._telling.tell(link, Work(work, self._owners.token))
        self._owners.record_ends()

    def _tell_replaced(self, link: int | None, left: bool = False) -> None:
        """It hears of it at its next commit too; but where nothing is to be committed, it would go on without what is pushed to the
        newer owner."""
        if link is not None:
            self._telling.tell(link, Work([], self._owners.token, left))
