"""A hundred thousand connections that send what no client should, against decoder and core in this process."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import cache

import psutil
import pytest

from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Item, Pingresp
from mqtt.reason import ReasonCode
from tests.fuzz.cases import LANES, Case, case, prepare
from tests.fuzz.inside import PACKET_BYTES_MAX, Inside
from tests.fuzz.judge import Seen, Unjust, judged

CASES = 100_000
CHUNK = 10_000
GROWTH_MAX = 1.05
OWN = ("fuzz", "spoiled")
"""How the names of good CONNECTs begin."""


@cache
def world() -> Inside:
    """One for all of them: what one leaves behind, the next meets."""
    prepare()
    return Inside()


@cache
def _warm_bytes() -> int:
    """What this process held when the first ten thousand were done."""
    return _own_bytes()


def _own_bytes() -> int:
    gc.collect()
    return int(psutil.Process(os.getpid()).memory_full_info().uss)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_whatever_is_sent_is_answered_closed_or_served(first: int) -> None:
    """No exception, well-formed answers, a reason where the version has one, the same however it is cut, an honest client served."""
    world().run(range(first, first + CHUNK))
    _warm_bytes()


@pytest.mark.slow
def test_nothing_is_left_of_them() -> None:
    """Within five of a hundred of what was held after the first ten thousand."""
    world()
    before = _warm_bytes()
    assert _own_bytes() <= GROWTH_MAX * before


@pytest.mark.slow
def test_a_case_is_made_from_its_number_alone() -> None:
    """Whoever is told a number has the bytes."""
    assert [case(number) for number in range(200)] == [case(number) for number in range(200)]
    assert len({case(number).wire for number in range(200)}) > 190


@pytest.mark.slow
def test_nobody_who_is_waited_for_loses_his_client_to_another() -> None:
    """Cases of other lanes run at the same time, and one with spoiled frames may still be on its way: none of these has his name.

    A broker that took the CONNECT of a spoiled one behind a good one of the same name refused that with 0x89, as it has to, of which
    3.1.1 makes return code 3.
    """
    takers: dict[str, set[tuple[int, bool]]] = {}
    for each in map(case, range(2_000)):
        items = _understood(each.wire)
        if items and isinstance(items[0], Connect) and items[0].client_id.startswith(OWN):
            takers.setdefault(items[0].client_id, set()).add((each.number % LANES, each.spoiled))
    assert len(takers) > LANES and all(len(found) == 1 for found in takers.values())


def _understood(wire: bytes) -> list[Item]:
    try:
        return Decoder(None, PACKET_BYTES_MAX).feed(wire)
    except DecodeError as error:
        return error.items


@pytest.mark.slow
def test_all_kinds_of_cases_come() -> None:
    """Both versions, before and after login, both ways, whole and in pieces, byte by byte too."""
    kinds = {(each.version, bool(each.login), each.web, min(len(each.pieces), 3)) for each in map(case, range(500))}
    assert len(kinds) == 2 * 2 * 2 * 3
    assert any(len(each.pieces) == len(each.wire) > 20 for each in map(case, range(300)))


GOOD = Case(0, 5, 20, b"x" * 20 + b"y", (b"x" * 20, b"y"))
ONLINE = encode(5, Connack(False))
BYE = encode(5, Disconnect(ReasonCode.MALFORMED_PACKET))
UNJUST: dict[str, Callable[[], Seen]] = {
    "no answer": lambda: Seen(5, b"", True, "bad"),
    "refused and still there": lambda: Seen(5, ONLINE, False, "bad"),
    "not told why": lambda: Seen(5, ONLINE, True, "bad"),
    "told, and not closed": lambda: Seen(5, ONLINE + BYE, False),
    "something after DISCONNECT": lambda: Seen(5, ONLINE + BYE + encode(5, Pingresp()), True, "bad"),
    "two CONNACKs": lambda: Seen(5, ONLINE + ONLINE, False),
    "half a packet": lambda: Seen(5, ONLINE[:-1], False),
    "a packet of another version": lambda: Seen(4, encode(4, Connack(False)) + BYE, True, "bad"),
    "a good CONNECT refused": lambda: Seen(5, encode(5, Connack(False, ReasonCode.NOT_AUTHORIZED)), True),
    "not served": lambda: Seen(5, ONLINE, False, None, 0, True),
}


@pytest.mark.parametrize("name", UNJUST)
def test_the_judge_sees_what_is_wrong(name: str) -> None:
    """Each of these would be a fault of the server."""
    with pytest.raises(Unjust):
        judged(GOOD, UNJUST[name]())


def test_the_judge_lets_right_answers_pass() -> None:
    """Refused with a reason, served, waiting for the rest, gone because the client left."""
    for seen in (
        Seen(5, ONLINE + BYE, True, "bad"),
        Seen(5, ONLINE + encode(5, Pingresp()), False, None, 0, True),
        Seen(5, ONLINE, False, None, 7),
        Seen(5, ONLINE, True, "bad", left=True),
        Seen(4, b"", True, "bad"),
    ):
        judged(GOOD, seen)
