"""What a session that is online takes in its session actor while nothing happens, however many streams its filter matches."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from itertools import count, islice
from types import BuiltinFunctionType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType

import pytest

from sessions.frames import PUBACK, Acked, Attach, Deliver, Detach, Subscribe
from sessions.options import SessionOptions
from tests.sessions.scripted import Script

FEW, MANY = 4, 32
"""The first few make what all of them share."""
IDLE_BYTES_MAX = 4_096
PROGRAM = (type, ModuleType, CodeType, BuiltinFunctionType, property, MemberDescriptorType, GetSetDescriptorType)


def held(root: object) -> int:
    """Bytes of everything that this object leads to; the program itself is left out.  As the allocator gives them: 16 at a time."""
    seen = {id(root): root}
    todo = [root]
    while todo:
        one = todo.pop()
        if isinstance(one, FunctionType):
            leads_to = [*(one.__closure__ or ()), *(one.__defaults__ or ())]
        else:
            leads_to = gc.get_referents(one)
        for found in leads_to:
            if id(found) not in seen and not isinstance(found, PROGRAM):
                seen[id(found)] = found
                todo.append(found)
    return sum(-(-sys.getsizeof(each) // 16) * 16 for each in seen.values())


def connect(s: Script, clients: list[bytes]) -> None:
    for client in clients:
        conn, present, session_id, _ = s.shards[s.slots.shard_of(client)].connect(client)
        s.gateway(Attach(client, conn, session_id, present, 5, 100))
    s.rest()


def settle(s: Script) -> None:
    """Everything that is only on its way is over."""
    for _ in range(25):
        s.tick(1_000)
        s.answer()
    s.rest()
    s.sent.clear()


def new(s: Script, clients: list[bytes]) -> None:
    """Sessions with the filter #, at the head."""
    connect(s, clients)
    for conn in list(s.core._state.by_conn):
        s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    settle(s)


def served(s: Script, clients: list[bytes]) -> None:
    """They have had messages of every shard, one by one, and have acknowledged them."""
    new(s, clients)
    for shard in [*range(len(s.shards))] * 3:
        s.publish(1, shard=shard)
        s.live(shard)
        s.rest()
        for frame in s.take_sent():
            for conn, _, packet_ids, _, _ in frame.to if isinstance(frame, Deliver) else ():
                s.gateway(Acked(conn, PUBACK, packet_ids, False))
        s.rest()
    assert s.core.counters.acknowledged == 3 * len(s.shards) * len(clients)
    settle(s)


def returned(s: Script, clients: list[bytes]) -> None:
    """They were away, and are loaded from their rows."""
    served(s, clients)
    for conn in list(s.core._state.by_conn):
        s.gateway(Detach(conn))
    settle(s)
    assert not s.core.loaded
    connect(s, clients)
    settle(s)


def sessions(shards: int, number: int, have: Callable[[Script, list[bytes]], None]) -> int:
    """Bytes that the core of so many sessions holds, all of one home."""
    s = Script(shards, options=SessionOptions(lazy_commit_ms=0, heartbeat_ms=1_000))
    s.owned()
    of_one_home = (client for client in (b"c%d" % n for n in count()) if not s.slots.shard_of(client))
    have(s, list(islice(of_one_home, number)))
    assert s.core.online == s.core.loaded == number and not s.queries and not s.asked
    gc.collect()
    return held(s.core)


@pytest.mark.slow
@pytest.mark.parametrize("have", [new, served, returned])
@pytest.mark.parametrize("shards", [1, 8])
def test_an_idle_session_takes_no_more_than_4_kb(shards: int, have: Callable[[Script, list[bytes]], None]) -> None:
    """However many shards there are, up to those of a machine with 16 cores."""
    each = (sessions(shards, FEW + MANY, have) - sessions(shards, FEW, have)) / MANY
    assert each <= IDLE_BYTES_MAX, f"{each:.0f} bytes each"
    assert each > IDLE_BYTES_MAX / 4, "it is not counted"
