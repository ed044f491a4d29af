"""What every target keeps, whatever it is: each test runs against the real other side of every kind."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bridge.port import Batch, Misconfigured, Outcome, Target, Unavailable
from tests.bridge.batches import batch
from tests.bridge.databases import Cluster
from tests.bridge.kafka_peer import KafkaPeer
from tests.bridge.peers import (
    JsonlPeer,
    Mosquitto3Peer,
    MosquittoPeer,
    ParquetPeer,
    Peer,
    PostgresqlPeer,
    WebBatchPeer,
    WebPeer,
    what,
)

pytestmark = pytest.mark.slow

PEERS: dict[str, tuple[type[Peer], str]] = {
    "mqtt-3.1.1": (Mosquitto3Peer, "mosquitto"),
    "mqtt-5": (MosquittoPeer, "mosquitto"),
    "http": (WebPeer, ""),
    "http-batch": (WebBatchPeer, ""),
    "postgresql": (PostgresqlPeer, "postgresql"),
    "jsonl": (JsonlPeer, ""),
    "parquet": (ParquetPeer, "arrow"),
    "kafka": (KafkaPeer, "kafka"),
}
"""The other side, and what of the machine it needs."""
_MARKS = [pytest.param(name, marks=[pytest.mark.needs(need)] if need else []) for name, (_, need) in PEERS.items()]
MEMORY_GROWN_MAX = 2 * 2**20


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[Cluster]]:
    """Started by the first test that wants one."""
    made: list[Cluster] = []
    yield made
    for cluster in made:
        cluster.end()


@pytest.fixture(params=_MARKS)
async def peer(request: pytest.FixtureRequest, tmp_path: Path, clusters: list[Cluster]) -> AsyncIterator[Peer]:
    made = PEERS[request.param][0](tmp_path)
    if isinstance(made, PostgresqlPeer):
        if not clusters:
            clusters.append(Cluster())
            clusters[0].start()
        made.cluster = clusters[0]
    await made.start()
    yield made
    await made.end()


async def opened(peer: Peer) -> Target:
    target = peer.target()
    await target.open()
    return target


async def carried(peer: Peer, wanted: Batch) -> list[str]:
    """All of the batch, as a bridge does it: what is not settled comes again, by a new target after a failure.  The refusals."""
    left, reasons = wanted, []
    target: Target | None = None
    async with asyncio.timeout(30):
        while left.messages:
            try:
                if target is None:
                    target = peer.target()
                    accepted = await target.open()
                    if accepted is not None and accepted.epoch == left.epoch:
                        left = Batch(left.epoch, tuple([each for each in left.messages if each.number > accepted.number]))
                        continue
                outcome = await target.deliver(left)
            except Unavailable:
                assert target is not None
                await target.close()
                target = None
                await asyncio.sleep(0.02)
                continue
            reasons += [refusal.reason for refusal in outcome.refused]
            left = Batch(left.epoch, left.messages[outcome.done :])
    if target is not None:
        await target.close()
    return reasons


async def test_everything_arrives_in_order_before_it_counts_as_accepted(peer: Peer) -> None:
    """After `deliver` has said so, the other side has it; in the order in which it was given."""
    target = await opened(peer)
    first, second = batch(range(1, 101)), batch(range(101, 151))
    assert await target.deliver(first) == Outcome(100)
    assert await target.deliver(second) == Outcome(50)
    await target.close()
    assert await peer.until(150) == [*what(first), *what(second)]


async def test_closing_twice_and_before_opening_is_fine(peer: Peer) -> None:
    """`close` raises nothing, whenever it comes."""
    never = peer.target()
    await never.close()
    target = await opened(peer)
    await target.close()
    await target.close()
    with pytest.raises(Unavailable):
        await target.deliver(batch([1]))


async def test_a_target_that_is_away_says_so_and_goes_on_when_it_is_back(peer: Peer) -> None:
    """Nothing is lost, and nothing out of order, over a time without connection."""
    if not peer.cuts:
        return
    before, after = batch(range(1, 21)), batch(range(21, 61))
    target = await opened(peer)
    assert (await target.deliver(before)).done == 20
    await peer.until(20)
    await peer.away()
    with pytest.raises(Unavailable):
        await target.deliver(after)
    await target.close()
    again = peer.target()
    with pytest.raises(Unavailable):
        await _begun(again, after)
    await again.close()
    await peer.back()
    assert await carried(peer, after) == []
    assert await peer.until(60) == [*what(before), *what(after)]


async def test_what_was_under_way_when_the_answer_was_lost_is_there_once_or_known_by_its_identity(peer: Peer) -> None:
    """Of what the other side has got while its answer did not come nothing is twice where that is promised, elsewhere twice is the same."""
    wanted = batch(range(1, 31))
    target = await opened(peer)
    peer.lose_answers()
    delivering = asyncio.create_task(target.deliver(wanted))
    if peer.proxy is not None:
        # One that takes a message only after the answer to the one before has one.
        await peer.until(1)
        await asyncio.sleep(0.2)
        await peer.away()
        await peer.back()
    else:
        await asyncio.sleep(0.01)
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)
    await target.close()
    assert await carried(peer, wanted) == []
    got = await peer.until(30)
    if target.exactly_once:
        assert got == what(wanted)
    else:
        assert list(dict.fromkeys(got)) == what(wanted)


async def test_a_message_that_is_refused_for_good_holds_back_no_other(peer: Peer) -> None:
    """Each is told by its index, and those around it are accepted, in order."""
    wanted = list(batch(range(1, 24)).messages)
    for index in (4, 17):
        bad = peer.refused(wanted[index].number)
        if bad is None:
            return
        wanted[index] = bad
    target = await opened(peer)
    outcome = await target.deliver(Batch("made-1", tuple(wanted)))
    await target.close()
    assert outcome.done == 23
    assert [refusal.index for refusal in outcome.refused] == [4, 17]
    assert all(refusal.reason for refusal in outcome.refused)
    assert await peer.until(21) == [each for index, each in enumerate(what(Batch("made-1", tuple(wanted)))) if index not in (4, 17)]


async def test_a_batch_of_one_message_that_is_refused_is_settled(peer: Peer) -> None:
    """It is not tried for ever."""
    bad = peer.refused(1)
    if bad is None:
        return
    target = await opened(peer)
    outcome = await target.deliver(Batch("made-1", (bad,)))
    await target.close()
    assert outcome.done == 1 and len(outcome.refused) == 1


async def test_another_epoch_begins_with_any_number(peer: Peer) -> None:
    """Numbers of a bridge that was made anew say nothing of those before: lower ones are new messages."""
    assert await carried(peer, batch(range(50, 60))) == []
    assert await carried(peer, batch(range(10, 20), "made-2")) == []
    assert sorted(await peer.until(20)) == sorted([*what(batch(range(50, 60))), *what(batch(range(10, 20)))])


async def test_memory_does_not_grow_with_what_was_delivered(peer: Peer) -> None:
    """A target holds the batch it is given, and nothing of those before."""
    got = _Nothing()
    if isinstance(peer, MosquittoPeer | WebPeer):
        peer._got = got
        if isinstance(peer, MosquittoPeer):
            peer.messages = _Nothing()
        else:
            peer.requests = _Nothing()
    target = await opened(peer)
    tracemalloc.start()
    try:
        sizes = []
        for turn in range(40):
            numbers = range(1 + turn * 50, 51 + turn * 50)
            full = batch(numbers)._replace(messages=tuple([each._replace(payload=b"x" * 2000) for each in batch(numbers).messages]))
            assert (await target.deliver(full)).done == 50
            if isinstance(peer, MosquittoPeer):
                # Its subscriber is in this process too, and holds what it has not come to.
                async with asyncio.timeout(30):
                    while got.taken < 50 * (turn + 1):  # noqa: ASYNC110  # the other side tells nobody
                        await asyncio.sleep(0.01)
            sizes.append(tracemalloc.get_traced_memory()[0])
        # 4 MB went through; the first turns load what a library loads at its first use.
        assert sizes[-1] - sizes[9] < MEMORY_GROWN_MAX
    finally:
        tracemalloc.stop()
        await target.close()


async def _begun(target: Target, wanted: Batch) -> None:
    """Where connections are made when they are needed, opening fails at nothing."""
    await target.open()
    await target.deliver(wanted)


class _Nothing(list):  # type: ignore[type-arg]  # of a fixture, which may have anything
    """Keeps nothing, so that only what the target keeps is measured."""

    taken = 0

    def append(self, _each: object) -> None:
        self.taken += 1

    def __iadd__(self, _each: object) -> _Nothing:  # type: ignore[misc]
        return self


def test_misconfigured_is_no_kind_of_unavailable() -> None:
    """A bridge tells them apart by their class."""
    assert not issubclass(Misconfigured, Unavailable) and not issubclass(Unavailable, Misconfigured)
