"""What every register does: the one in a file, the same over a link, one etcd and three."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from actors.endpoints import Endpoint
from actors.links import LinkServer
from actors.register.etcd import EtcdRegister
from actors.register.linked import LinkedRegister, RegisterHost
from actors.register.local import open_register
from actors.wire import Wire
from shards.replication.ports import Outcome
from shards.replication.register import NO_VALUE, VALUE_BYTES_MAX, Held, Register
from tests.actors.register.etcds import Etcd, etcds, ready

SECRET = b"s" * 32
IN_ETCD = [pytest.mark.needs("etcd"), pytest.mark.slow]

Two = tuple[Register, Register]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[int], list[Etcd]]]:
    """One cluster of each size for all tests; each test has keys of its own."""
    with ExitStack() as stack:
        yield cache(lambda count: stack.enter_context(etcds(count)))


@pytest.fixture
def members(request: pytest.FixtureRequest, clusters: Callable[[int], list[Etcd]]) -> list[Etcd]:
    return clusters(request.param) if request.param else []


@pytest.fixture
async def two(request: pytest.FixtureRequest, members: list[Etcd], tmp_path: Path) -> AsyncIterator[Two]:
    """Two that ask the same register."""
    form: str = request.param
    if form == "local":
        register = open_register(tmp_path)
        yield register, register
        await register.close()
    elif form == "linked":
        register = open_register(tmp_path)
        at = Endpoint(str(tmp_path / "r"))
        server = LinkServer([at], RegisterHost(register), Wire(SECRET), "register", "host")
        await server.start()
        clients = [LinkedRegister(lambda: at, Wire(SECRET), name, 30.0) for name in ("one", "other")]
        for client in clients:
            client.start()
        yield clients[0], clients[1]
        for client in clients:
            await client.close()
        await server.stop()
        await register.close()
    else:
        await ready(members)
        endpoints = [member.endpoint for member in members]
        both = EtcdRegister(endpoints, timeout_s=30.0), EtcdRegister(endpoints[::-1], timeout_s=30.0)
        yield both
        for each in both:
            await each.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """members before two: a form that has any."""
    if "two" in metafunc.fixturenames:
        rows = [("local", 0), ("linked", 0)]
        params = [pytest.param(form, count, id=form) for form, count in rows]
        params += [pytest.param(f"etcd-{count}", count, id=f"etcd-{count}", marks=IN_ETCD) for count in (1, 3)]
        metafunc.parametrize(("two", "members"), params, indirect=True)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """Of this test alone."""
    return f"/holdfast/{request.node.name}/"


async def put(register: Register, key: str, value: bytes) -> Held:
    """A first value."""
    assert await register.cas(key, NO_VALUE, value) is Outcome.DONE
    held = await register.read(key)
    assert held is not None
    assert held.value == value
    return held


async def test_a_key_begins_without_a_value_and_is_made_once(two: Two, key: str) -> None:
    """NO_VALUE compares with nothing that is there, whoever asks."""
    one, other = two
    assert await one.read(key) is None
    held = await put(one, key, b"first")
    assert held.version > NO_VALUE
    assert await other.read(key) == held
    assert await other.cas(key, NO_VALUE, b"second") is Outcome.CONFLICT
    assert await one.cas(key, held.version, b"second") is Outcome.DONE
    assert await other.cas(key, held.version, b"third") is Outcome.CONFLICT
    after = await other.read(key)
    assert after is not None
    assert (after.value, after.version > held.version) == (b"second", True)


async def test_a_version_of_another_key_or_of_the_future_is_a_conflict(two: Two, key: str) -> None:
    """Also where there is no value."""
    held = await put(two[0], key + "a", b"x")
    for version in (held.version + 1, held.version - 1 or 99, held.version + 1_000_000):
        assert await two[0].cas(key + "a", version, b"y") is Outcome.CONFLICT
    assert await two[0].cas(key + "b", held.version, b"y") is Outcome.CONFLICT
    assert await two[1].read(key + "b") is None


@pytest.mark.parametrize("value", [b"", b"\0", bytes(range(256)), b"x" * VALUE_BYTES_MAX], ids=["empty", "zero", "all", "largest"])
async def test_any_bytes_are_a_value(two: Two, key: str, value: bytes) -> None:
    """An empty one is one, and not none."""
    await put(two[0], key, value)


async def test_writing_the_same_value_again_is_a_change(two: Two, key: str) -> None:
    """Whoever compares sees it."""
    held = await put(two[0], key, b"same")
    assert await two[0].cas(key, held.version, b"same") is Outcome.DONE
    assert await two[1].cas(key, held.version, b"other") is Outcome.CONFLICT


async def test_a_list_has_the_keys_that_begin_so_and_no_other(two: Two, key: str) -> None:
    """Sorted, with values and versions; the neighbours of the prefix on both sides are not in it."""
    one, other = two
    names = [key + "s/10", key + "s/2", key + "s/", key + "s/ä"]
    for name in [*names, key + "s", key + "s.", key + "s0", key + "r/1", key + "t/1"]:
        await put(one, name, name.encode())
    listed = await other.list(key + "s/")
    assert list(listed) == sorted(names)
    assert [held.value for held in listed.values()] == [name.encode() for name in listed]
    assert listed[names[0]] == await one.read(names[0])
    assert await one.list(key + "nothing/") == {}


async def test_of_changes_at_the_same_time_one_is_made(two: Two, key: str) -> None:
    """From both sides, many at once."""
    held = await put(two[0], key, b"0")
    outcomes = await asyncio.gather(*(two[at % 2].cas(key, held.version, b"%d" % at) for at in range(1, 21)))
    assert outcomes.count(Outcome.DONE) == 1
    assert outcomes.count(Outcome.CONFLICT) == 19
    after = await two[0].read(key)
    assert after is not None
    assert after.value == b"%d" % (outcomes.index(Outcome.DONE) + 1)


async def test_a_counter_that_everybody_counts_up_loses_nothing(two: Two, key: str) -> None:
    """Read, then compare-and-set, until it is done; and what each reads only grows."""
    await put(two[0], key, b"0")
    made = 0

    async def count(register: Register, times: int) -> None:
        nonlocal made
        last = 0
        for _ in range(times):
            outcome = Outcome.CONFLICT
            while outcome is not Outcome.DONE:
                held = await register.read(key)
                assert held is not None
                assert held.version >= last
                last = held.version
                outcome = await register.cas(key, held.version, b"%d" % (int(held.value) + 1))
                assert outcome is not Outcome.UNKNOWN
            made += 1

    await asyncio.gather(*(count(two[at % 2], 8) for at in range(6)))
    held = await two[1].read(key)
    assert held is not None
    assert (int(held.value), made) == (48, 48)


async def test_a_change_whose_caller_has_gone_is_made_whole_or_not_at_all(two: Two, key: str) -> None:
    """Afterwards the register goes on, and the value is the old one or the new."""
    held = await put(two[0], key, b"old")
    waiting = asyncio.ensure_future(two[0].cas(key, held.version, b"new"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    while (now := await two[1].read(key)) is not None and await two[1].cas(key, now.version, b"last") is not Outcome.DONE:
        assert now.value in (b"old", b"new")
    assert (await two[0].read(key)) != held
