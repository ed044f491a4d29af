"""How many connections a listener has, and how fast new ones come: each limit, and that nothing is kept for whoever is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transport.limits import ADDRESSES_MAX, Limiter, Limits, net_of


def test_one_too_many_is_not_counted() -> None:
    """And when one is gone there is room for the next."""
    limiter = Limiter(Limits(connections_max=2))
    assert [limiter.accepted(0) for _ in range(3)] == [True, True, False] and limiter.connections == 2
    limiter.gone(None)
    assert limiter.accepted(0) and not limiter.accepted(0)


def test_an_address_has_its_own_limit() -> None:
    """Others come in beside it; the sentence names the setting."""
    limiter = Limiter(Limits(10, connections_per_address_max=2))
    assert [bool(limiter.known(address, 0)) for address in ("a", "a", "a", "b")] == [False, False, True, False]
    assert "connections_per_address_max" in limiter.known("a", 0)
    limiter.gone("a")
    assert limiter.known("a", 0) == ""


def test_a_second_s_worth_of_connections_comes_at_once_and_then_one_by_one() -> None:
    """Above the rate nothing is refused: it waits, and no longer than the rate says."""
    limiter = Limiter(Limits(1_000, connect_rate=10))
    assert limiter.wait_ms(1_000) == 0
    for _ in range(10):
        assert limiter.wait_ms(1_000) == 0 and limiter.accepted(1_000)
    wait = limiter.wait_ms(1_000)
    assert 100 <= wait <= 101 and limiter.wait_ms(1_000 + wait) == 0
    limiter.accepted(1_000 + wait)
    assert limiter.wait_ms(1_000 + wait) > 90 and limiter.wait_ms(60_000) == 0


def test_an_address_that_comes_too_often_is_refused_until_it_has_waited() -> None:
    """Its refusals do not make it wait longer, and others do not wait."""
    limiter = Limiter(Limits(1_000, connect_rate_per_address=5))
    found = [bool(limiter.known("a", 1_000)) for _ in range(8)]
    assert found == [False] * 5 + [True] * 3 and limiter.known("b", 1_000) == ""
    assert "connect_rate_per_address" in limiter.known("a", 1_100) and limiter.known("a", 1_201) == ""


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    """The one that came longest ago is forgotten first."""
    limiter = Limiter(Limits(10**6, connect_rate_per_address=1))
    for number in range(ADDRESSES_MAX + 5):
        assert limiter.known(f"a{number}", 1_000) == ""
        limiter.gone(f"a{number}")
    assert len(limiter._of) == ADDRESSES_MAX and not limiter._here
    assert limiter.known("a0", 1_000) == "" and limiter.known(f"a{ADDRESSES_MAX}", 1_000)


def test_limits_change_while_connections_are_there() -> None:
    """Whoever came before there was a limit is not counted, and his end takes nothing from others."""
    limiter = Limiter(Limits(5))
    for _ in range(3):
        limiter.accepted(0)
        limiter.known("a", 0)
    limiter.limits = Limits(2, connections_per_address_max=1)
    assert not limiter.accepted(0)
    for _ in range(3):
        limiter.gone("a")
    assert limiter.accepted(0) and limiter.known("a", 0) == "" and limiter.known("a", 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_an_address_is_known_exactly_while_it_has_connections(steps: list[tuple[str, bool]]) -> None:
    """Whatever comes and goes in whatever order."""
    limiter, here = Limiter(Limits(100, connections_per_address_max=2)), dict.fromkeys("abc", 0)
    for address, comes in steps:
        if comes:
            limiter.accepted(0)
            if limiter.known(address, 0):
                limiter.gone(None)
                assert here[address] == 2
            else:
                here[address] += 1
        elif here[address]:
            limiter.gone(address)
            here[address] -= 1
    assert limiter._here == {address: count for address, count in here.items() if count}
    assert limiter.connections == sum(here.values())


@pytest.mark.parametrize(
    ("address", "net"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8::7", "2001:db8:0:0::/64"),
        ("::1", "0:0:0:0::/64"),
        ("2001:db8:1:2:3::", "2001:db8:1:2::/64"),
        ("::", "0:0:0:0::/64"),
    ],
)
def test_of_ipv6_the_net_counts(address: str, net: str) -> None:
    """Whoever has one address of it has all of them."""
    assert net_of(address) == net
