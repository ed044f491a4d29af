"""What retention did, in the log of the shard: generations that went or are kept from going, leases that ended or lost something."""

from __future__ import annotations

from collections import deque

import structlog

from shards.retention import Dropped, Held, LeaseExpired, LeaseLost, News

log = structlog.get_logger(__name__)


def tell(shard: int, news: deque[News]) -> None:
    """Each is told once."""
    while news:
        match news.popleft():
            case Dropped(generation, klass, reason):
                log.info("shard.generation_dropped", shard=shard, generation=generation, klass=klass, reason=reason)
            case Held(generation, klass, by):
                log.info("shard.generation_held", shard=shard, generation=generation, klass=klass, by=by)
            case LeaseLost(name, generation):
                log.error(
                    "shard.lease_lost", shard=shard, lease=name, generation=generation,
                    cause="its bounds were passed, or the store is above the soft mark of its quota; its reader has not had all of it",
                )  # fmt: skip
            case LeaseExpired(name, position):
                log.warning("shard.lease_expired", shard=shard, lease=name, position=position, cause="nobody has renewed it in time")
