"""What must hold after a campaign over several sites, besides what every history is asked (tests.broker.history): DUP, and the copies."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Sequence

from actors.asking import NotReached, running
from actors.inquiry.sites import Sites
from actors.sites.asked import ask_info
from tests.broker.history import Delivery, History, parse_payload
from tests.broker.running import RunningBroker
from tests.gates.gate import GateFailed
from tests.sites.copies import unequal
from tests.sites.running import SeveralSites

Key = tuple[str, int]


def repeated(history: History) -> str | None:
    """What came anew more often than there can be of it, in one sentence.

    A publisher at QoS 1 that gets no answer writes again, and each writing may be stored; at QoS 2 one is. Of each that is stored a session
    gets one without DUP [MQTT-3.3.1-1], and at QoS 2 one. So a message that was stored twice, or taken twice from the store, is found.
    """
    for name, session in history.sessions.items():
        for key, count in _anew(session.deliveries).items():
            sent = history.sent.get(key)
            most = 0 if sent is None else min(1, sent.writings) if sent.qos == 2 else sent.writings
            if 0 < most < count:
                return f"message {key[1]} of {key[0]} came to {name} {count} times anew, and was written {most} times"
    return None


def _anew(deliveries: Sequence[Delivery]) -> Counter[Key]:
    keys = (parse_payload(each.payload) for each in deliveries if each.qos == 2 or not each.dup)
    return Counter(key for key in keys if key is not None)


def require_none_repeated(history: History) -> None:
    if (found := repeated(history)) is not None:
        raise GateFailed(found)


async def seen_by(site: RunningBroker) -> Sites | None:
    """What `ds info` shows at this site; None: it does not answer."""
    try:
        return await ask_info(running(site.data_dir))
    except NotReached:
        return None


def unsettled(seen: Sites, wanted: Collection[str]) -> str:
    """Why it is not over: replicas are on other sites than these (in small letters), move, or are not in sync. Empty: it is."""
    on = {replica.site.lower() for shard in seen.shards for replica in shard.replicas}
    if on != set(wanted):
        return f"replicas are on {sorted(on)}, and {sorted(wanted)} were wanted"
    for shard in seen.shards:
        if shard.transitions:
            return f"shard {shard.shard} still has transitions {', '.join(shard.transitions)}"
        if set(shard.in_sync) != {replica.site for replica in shard.replicas} or not shard.writable:
            return f"of shard {shard.shard} only {', '.join(shard.in_sync) or 'nobody'} is in sync"
    return ""


async def converged(sites: SeveralSites, at: int, wanted: Collection[str], within_s: float) -> Sites:
    """Wait until site `at` shows replicas on exactly these sites, all in sync."""
    deadline = time.monotonic() + within_s
    why = "it does not answer"
    while time.monotonic() < deadline:
        seen = await seen_by(sites.sites[at])
        if seen is not None and not (why := unsettled(seen, wanted)):
            return seen
        await asyncio.sleep(0.5)
    raise GateFailed(f"not settled within {within_s:.0f} s: {why}")


async def require_equal_copies(sites: SeveralSites, seen: Sites, names: Sequence[str]) -> None:
    """Stops all sites, and compares the logs of the copies that are there as was seen.  names: of the sites, in their order."""
    await asyncio.gather(*(asyncio.to_thread(site.down) for site in sites.sites))
    for shard in seen.shards:
        there = {replica.site.lower() for replica in shard.replicas}
        stores = [site.data_dir / "shards" for site, name in zip(sites.sites, names, strict=True) if name in there]
        found = await asyncio.to_thread(unequal, stores, shard.shard)
        if found is not None:
            raise GateFailed(found)
