"""The register in three real etcds of which some are killed, paused, slow or cut off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from actors.register.etcd import EtcdRegister
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import NO_VALUE, RegisterMistake
from tests.actors.register.etcds import Etcd, Proxy, etcds, joined_learner, leader, ready, until_it_answers

pytestmark = [pytest.mark.needs("etcd"), pytest.mark.slow]

KEY = "/holdfast/shard/0"


@pytest.fixture
async def three() -> AsyncIterator[list[Etcd]]:
    with etcds(3) as members:
        await ready(members)
        yield members


def register(members: list[Etcd], timeout_s: float = 1.0) -> EtcdRegister:
    return EtcdRegister([member.endpoint for member in members], timeout_s=timeout_s)


async def count_up(one: EtcdRegister, until: asyncio.Event, done: list[int], unknown: list[int]) -> None:
    """Changes of one key, each with a number of its own; what is UNKNOWN is read again before anything else is tried."""
    number = 0
    while not until.is_set():
        try:
            held = await one.read(KEY)
        except RegisterAway:
            await asyncio.sleep(0.02)
            continue
        number += 1
        outcome = await one.cas(KEY, held.version if held else NO_VALUE, b"%s%d " % (held.value if held else b"", number))
        if outcome is Outcome.DONE:
            done.append(number)
        elif outcome is Outcome.UNKNOWN:
            unknown.append(number)
        else:
            # Nobody else writes: only an earlier change that was UNKNOWN can have come between.
            assert unknown


async def test_changes_go_on_when_the_leader_is_killed_and_none_is_lost(three: list[Etcd]) -> None:
    """Twice, with kill -9 and a restart: all that was DONE is there, once each, in order; nothing else than what was UNKNOWN beside it."""
    one = register(three)
    until = asyncio.Event()
    done: list[int] = []
    unknown: list[int] = []
    working = asyncio.create_task(count_up(one, until, done, unknown))
    for _ in range(2):
        killed = await leader(three)
        before = len(done)
        killed.kill()
        async with asyncio.timeout(60):
            while len(done) < before + 20:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        killed.start()
        await ready([killed])
    until.set()
    await working
    held = await one.read(KEY)
    assert held is not None
    there = list(map(int, held.value.split()))
    assert there == sorted(set(there))
    assert set(done) <= set(there) <= set(done) | set(unknown)
    await one.close()


async def test_without_a_majority_nothing_is_answered_and_nothing_made_up(three: list[Etcd]) -> None:
    """Reads raise, changes are UNKNOWN; with the majority back, both go on and what was done before is there."""
    one = register(three, timeout_s=0.5)
    assert await one.cas(KEY, NO_VALUE, b"before") is Outcome.DONE
    held = await one.read(KEY)
    assert held is not None
    three[1].kill()
    three[2].kill()
    assert await one.cas(KEY, held.version, b"during") is Outcome.UNKNOWN
    with pytest.raises(RegisterAway, match="the register does not answer: ") as away:
        await one.read(KEY)
    assert not isinstance(away.value, RegisterMistake)
    for member in three:
        assert member.endpoint in str(away.value)
    assert one.trouble
    three[1].start()
    await until_it_answers(one)
    # The change that was UNKNOWN may come now, later, or never: what is compared next decides.
    async with asyncio.timeout(60):
        while True:
            now = await one.read(KEY)
            assert now is not None
            assert now.value in (b"before", b"during")
            if await one.cas(KEY, now.version, b"after") is Outcome.DONE:
                break
    after = await one.read(KEY)
    assert after is not None
    assert after.value == b"after"
    await one.close()


async def test_a_member_that_is_paused_costs_one_request_its_time(three: list[Etcd]) -> None:
    """SIGSTOP: it takes connections and answers nothing. The next request begins with another."""
    one = register(three, timeout_s=1.0)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.DONE
    three[0].pause()
    try:
        began = time.monotonic()
        await until_it_answers(one)
        assert time.monotonic() - began < 30
        began = time.monotonic()
        for _ in range(5):
            await one.read(KEY)
        assert time.monotonic() - began < 1.0, "asked the one that is paused again"
        assert "no answer within 1 s" not in one.trouble
    finally:
        three[0].resume()
    await one.close()


async def test_a_change_whose_answer_is_lost_is_unknown_and_there(three: list[Etcd]) -> None:
    """It is not tried at another endpoint, where it would meet itself: a read says what came of it."""
    async with Proxy(three[0].endpoint) as proxy:
        one = EtcdRegister([proxy.endpoint, three[1].endpoint], timeout_s=1.0)
        assert await one.read(KEY) is None
        proxy.swallow = True
        assert await one.cas(KEY, NO_VALUE, b"mine") is Outcome.UNKNOWN
        held = await one.read(KEY)
        assert held is not None
        assert held.value == b"mine"
        await one.close()


async def test_a_slow_etcd_answers_within_the_time_or_not_at_all(three: list[Etcd]) -> None:
    """Slower than timeout_s: the next endpoint is asked for a read, and a change is UNKNOWN. Slow within it: as always."""
    async with Proxy(three[0].endpoint) as proxy:
        one = EtcdRegister([proxy.endpoint], timeout_s=2.0)
        proxy.delay_s = 0.2
        assert await one.cas(KEY, NO_VALUE, b"slow") is Outcome.DONE
        proxy.delay_s = 5.0
        held = await register(three).read(KEY)
        assert held is not None
        quick = EtcdRegister([proxy.endpoint, three[1].endpoint], timeout_s=0.5)
        assert await quick.read(KEY) == held
        with pytest.raises(RegisterAway, match=r"no answer within 2 s"):
            await one.read(KEY)
        await one.close()
        await quick.close()


async def test_an_endpoint_that_nobody_listens_on_is_passed_over(three: list[Etcd]) -> None:
    """Also for a change: nothing was sent to it."""
    leads = await leader(three)
    away = next(member for member in three if member is not leads)
    away.kill()
    one = EtcdRegister([away.endpoint, leads.endpoint], timeout_s=30.0)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.DONE
    assert "Connect call failed" in one.trouble or "refused" in one.trouble.lower()
    assert (await one.list("/holdfast/")).keys() == {KEY}
    assert one.trouble == ""
    await one.close()


async def test_a_learner_is_passed_over(three: list[Etcd]) -> None:
    """A member that does not vote yet has no answer of its own; another has."""
    async with joined_learner(three) as learner:
        one = EtcdRegister([learner.endpoint, three[0].endpoint], timeout_s=5.0)
        assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.DONE
        assert "is a learner" in one.trouble
        alone = EtcdRegister([learner.endpoint], timeout_s=5.0)
        with pytest.raises(RegisterAway, match="is a learner and answers nobody"):
            await alone.read(KEY)
        await one.close()
        await alone.close()
