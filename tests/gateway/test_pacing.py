"""Rates of one client: who publishes more is read more slowly, and nothing else changes for anybody."""

from __future__ import annotations

from random import Random

import pytest

from gateway.events import PauseReading, SettingsChanged
from gateway.options import Options
from gateway.pacing import Pace
from gateway.wheel import BUCKET_MS
from mqtt.packets import AckKind, AckRun, Connect, Pingreq, Pingresp, Publish, PublishRun
from tests.gateway.scripted import Client, Shell, message, subscribe

RATES = {"tcp": (10, 0)}


def paced(**more: tuple[int, int]) -> Shell:
    return Shell(Options(rates=more or RATES))


def burst(count: int, first: int = 1) -> list[PublishRun]:
    return [message(b"a", b"%d" % number, 1, number) for number in range(first, first + count)]


@pytest.mark.parametrize(("rates", "came", "pause_ms"), [((10, 0), (10, 9_999), 0), ((10, 0), (11, 0), 100), ((10, 0), (30, 0), 2_000)])
def test_a_second_s_worth_may_come_at_once(rates: tuple[int, int], came: tuple[int, int], pause_ms: int) -> None:
    """What is more is a debt, paid in the time that it is worth."""
    assert Pace(rates, 0).took(*came, 0) == pause_ms


def test_messages_and_bytes_are_both_counted() -> None:
    """The longer pause is the one that counts."""
    pace = Pace((10, 1_000), 0)
    assert pace.took(1, 4_000, 0) == 3_000
    assert pace.took(40, 10, 3_000) == 3_000


@pytest.mark.parametrize("seed", range(20))
def test_over_any_time_no_more_comes_than_the_rate_allows(seed: int) -> None:
    """At most a second's worth and one read above it, and a client that always has something gets its rate."""
    rng = Random(seed)
    rate, read = rng.randrange(1, 1_000), rng.randrange(1, 200)
    pace, now_ms, came = Pace((rate, 0), 0), 0, 0
    while now_ms < 600_000:
        came += read
        pause_ms = pace.took(read, 0, now_ms)
        assert (came - read) * 1_000 <= rate * (now_ms + 1_000)
        now_ms += pause_ms or 1
    # As often as once a millisecond is all that this client reads.
    assert came >= min(rate * 600, read * 600_000) * 0.98


def test_who_publishes_too_fast_is_not_read_until_the_debt_is_paid() -> None:
    """Everything that came is taken, in order; then it is read again, by one bucket of the wheel later at most."""
    shell = paced()
    client = shell.online("p")
    effects = client.send(*burst(40))
    assert PauseReading(client.socket, True) in effects and shell.core.counters.pauses_rate == 1
    shell.answer()
    assert [each.packet_ids[0] for each in client.take() if isinstance(each, AckRun | PublishRun)] == []
    assert [body for _, _, body in shell.homes.stored] == [b"\0%d" % number for number in range(1, 41)]
    shell.pass_time(2_900)
    assert client.paused
    shell.pass_time(100 + BUCKET_MS)
    assert not client.paused
    client.send(*burst(1, first=41))
    assert not client.paused


def test_nobody_else_is_delayed() -> None:
    """Not on the same listener either: each client has its own second."""
    shell = paced()
    taker, hasty, other = shell.online("t"), shell.online("h"), shell.online("o")
    subscribe(taker, b"a")
    hasty.send(*[message(b"a", b"%d" % number) for number in range(100)])
    assert hasty.paused
    other.send(message(b"a", b"other"))
    assert not other.paused
    assert [each.bodies[0] for each in taker.take() if isinstance(each, PublishRun)] == [
        *[b"\0%d" % number for number in range(100)],
        b"\0other",
    ]


def test_acknowledgements_and_pings_are_not_counted() -> None:
    """Only what is published is."""
    shell = paced()
    client = shell.online("c")
    for _ in range(100):
        client.send(Pingreq(), AckRun(AckKind.PUBREL, [1]))
    assert not client.paused and client.take().count(Pingresp()) == 100


def test_bytes_are_those_of_topics_and_bodies() -> None:
    """With their properties, as they are stored."""
    shell = paced(tcp=(0, 1_000))
    client = shell.online("c")
    client.send(Publish(0, 0, b"t" * 500, b"x" * 498))
    assert not client.paused
    client.send(Publish(0, 0, b"t", b"x" * 1_000))
    assert client.paused


def test_what_came_with_connect_is_counted_once() -> None:
    """It is taken when the client is online."""
    shell = paced()
    client = shell.client(5)
    client.send(Connect(5, "c"), *burst(10))
    shell.answer()
    assert not client.paused
    client.send(*burst(1, first=11))
    assert client.paused


def test_its_keep_alive_begins_anew_when_it_is_read_again() -> None:
    """A paused client is not half-open by our own doing."""
    shell = paced()
    client = shell.client(4)
    client.send(Connect(4, "c", keep_alive=1))
    shell.answer()
    client.send(*burst(60))
    shell.answer()
    shell.pass_time(5_000 + 2 * BUCKET_MS)
    assert not client.paused and client.closed is None
    shell.pass_time(1_000)
    assert client.closed is None
    shell.pass_time(2_000)
    assert client.closed is not None


def test_other_pauses_are_other_pauses() -> None:
    """A debt that is paid does not read a client that has too much unanswered."""
    shell = Shell(Options(rates=RATES, receive_maximum_in=4))
    client = shell.online("c", 4)
    client.send(*burst(20))
    shell.pass_time(2_000)
    assert client.paused
    shell.answer()
    assert not client.paused


def rates_now(shell: Shell, rates: dict[str, tuple[int, int]]) -> None:
    shell.turn(SettingsChanged(Options(rates=rates)))


def test_rates_change_for_whoever_is_there() -> None:
    """Taken away, the debt is forgiven; given, it begins with nothing used."""
    shell = paced()
    client = shell.online("c")
    client.send(*burst(100))
    rates_now(shell, {})
    assert not client.paused
    client.send(*burst(100, first=101))
    assert not client.paused
    rates_now(shell, {"other": (1, 0)})
    client.send(*burst(100, first=201))
    assert not client.paused
    rates_now(shell, {"tcp": (100, 0)})
    client.send(*burst(101, first=301))
    assert client.paused


def test_a_paused_client_may_go() -> None:
    """Its deadline means nothing any more."""
    shell = paced()
    gone: Client = shell.online("c")
    gone.send(*burst(30))
    assert gone.paused
    shell.online("c")
    shell.pass_time(5_000)
    assert gone.closed == "session taken over"
