"""What is known of the messages of one batch that were sent one by one and are answered in any order.

Holds: `settled` is the number of messages from the first on of which each one is accepted, refused or left out; it only grows.
"""

from __future__ import annotations

from bridge.port import Outcome, Refusal


class Flight:
    def __init__(self, count: int) -> None:
        self._open = dict.fromkeys(range(count))
        self._count = count
        self._refused: list[Refusal] = []
        self.under_way: dict[int, int] = {}
        """By packet identifier, or what stands for it, the index."""
        self.failed = ""
        """Why one was neither accepted nor refused for good; empty: none was."""

    def sent(self, packet: int, index: int) -> None:
        self.under_way[packet] = index

    def answered(self, packet: int) -> int | None:
        """Its index; None for an answer that nothing waits for."""
        return self.under_way.pop(packet, None)

    def settle(self, index: int, refusal: str = "") -> None:
        """The message needs nothing more; refusal: why it never will be accepted."""
        if index in self._open:
            del self._open[index]
            if refusal:
                self._refused.append(Refusal(index, refusal))

    @property
    def settled(self) -> int:
        return next(iter(self._open), self._count)

    def outcome(self) -> Outcome:
        done = self.settled
        return Outcome(done, tuple(sorted([each for each in self._refused if each.index < done], key=lambda each: each.index)))
