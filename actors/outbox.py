"""What a shard hears from the other shards: the homes of its retained messages, and of sessions that read here."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from shards.frames import Frame, Reply, Result, Retained

log = structlog.get_logger(__name__)


class Outbox:
    """The listener of a ShardClient.  arrived: a shard has our retained messages up to this position.  shard_told: it has answered a
    question; None: the link to it is up."""

    def __init__(self, arrived: Callable[[int, int], None], shard_told: Callable[[int, Result | None], None]) -> None:
        self._arrived = arrived
        self._told = shard_told

    def shard_linked(self, shard: int) -> None:
        self._told(shard, None)

    def shard_lost(self, shard: int) -> None:
        pass

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Retained):
                self._arrived(shard, reply.applied)

    def shard_told(self, shard: int, frame: Frame) -> None:
        if isinstance(frame, Result):
            self._told(shard, frame)
            return
        log.error("shard.unexpected_frame", shard=shard, frame=type(frame).__name__)
