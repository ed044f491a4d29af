"""Targets of our own, as a plugin brings them: what they are given they keep in this module, and they fail as they are told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bridge.port import Accepted, Batch, Context, Message, Outcome, Refusal, Unavailable


@dataclass
class Book:
    """By the name of a bridge."""

    taken: list[Message] = field(default_factory=list)
    away: bool = False
    attempts: int = 0
    slow_s: float = 0.0
    refuses: bytes = b""
    """Payloads that begin so."""


BOOKS: dict[str, Book] = {}


def book(name: str) -> Book:
    return BOOKS.setdefault(name, Book())


class Fussy:
    exactly_once: ClassVar[bool] = False

    def __init__(self, options: dict[str, Any], context: Context) -> None:
        self._book = book(str(options.get("book", context.bridge)))

    async def open(self) -> Accepted | None:
        self._book.attempts += 1
        if self._book.away:
            raise Unavailable("it is away")
        return None

    async def deliver(self, batch: Batch) -> Outcome:
        if self._book.slow_s:
            await asyncio.sleep(self._book.slow_s)
        if self._book.away:
            raise Unavailable("it is away")
        refuses = self._book.refuses
        refused = [at for at, each in enumerate(batch.messages) if refuses and each.payload.startswith(refuses)]
        self._book.taken += [each for at, each in enumerate(batch.messages) if at not in refused]
        return Outcome(len(batch.messages), tuple([Refusal(at, "it is not wanted") for at in refused]))

    async def close(self) -> None:
        pass
