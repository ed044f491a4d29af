"""What a record lets the shard say: kept until it is committed, and then sent to whoever is still linked.

Answers of numbered frames have a place of their own (shards.inbox), since they are sent again when they are asked for again. What is here
may be lost with its link.

Holds after every call (see check): the records in flight are in the order of their positions; nothing leaves before the record that was
being made when it was said, or, if that came to nothing, before all that were in flight then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from shards.events import Effect, Send
from shards.frames import Frame, Live

_WITH_SUBSCRIBERS = ("gateway", "session")
"""Who has live subscribers of its own, and is told of messages that enter here."""


@dataclass(slots=True)
class _Said:
    told: list[tuple[int, Frame]] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)


class Telling:
    def __init__(self, roles: Mapping[int, tuple[str, str]]) -> None:
        """roles: link -> (role, name) of those that are up, kept by the caller."""
        self._roles = roles
        self._now = _Said()
        self._in_flight: deque[tuple[int, _Said]] = deque()

    @property
    def in_flight(self) -> int:
        """Records submitted and not committed."""
        return len(self._in_flight)

    def tell(self, link: int, frame: Frame) -> None:
        self._now.told.append((link, frame))

    def tell_subscribers(self, live: Live) -> None:
        """Everybody with live subscribers is to hand it to them."""
        self._now.live.append(live)

    def link_of(self, name: str) -> int | None:
        for link, (_, sender) in self._roles.items():
            if sender == name:
                return link
        return None

    def link_of_successor(self, holder: str) -> int | None:
        """Of the holder of the newest owner token, or of its successor, which learns by what it is told that its own token is older: a
        process that had stood still can have taken the sessions back from it, and have died since."""
        found = self.link_of(holder)
        if found is not None:
            return found
        member = holder.partition(":")[0] + ":"
        names = [(name, link) for link, (role, name) in self._roles.items() if role == "session"]
        newer = [row for row in names if row[0].startswith(member) and row[0] > holder]
        return max(newer)[1] if newer else None

    def submitted(self, position: int) -> None:
        self._in_flight.append((position, self._now))
        self._now = _Said()

    def nothing_submitted(self) -> list[Effect]:
        """There was nothing to be written: what was said goes now, or with the last record on its way."""
        if not self._now.told:
            return []
        said, self._now.told = self._now.told, []
        if self._in_flight:
            self._in_flight[-1][1].told.extend(said)
            return []
        return [Send(link, frame) for link, frame in said if link in self._roles]

    def committed(self, position: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._in_flight and self._in_flight[0][0] <= position:
            _, said = self._in_flight.popleft()
            effects.extend(Send(link, frame) for link, frame in said.told if link in self._roles)
            for live in said.live:
                effects.extend(Send(link, live) for link, (role, _) in self._roles.items() if role in _WITH_SUBSCRIBERS)
        return effects

    def check(self) -> None:
        positions = [position for position, _ in self._in_flight]
        assert positions == sorted(positions)
