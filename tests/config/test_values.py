"""Durations, sizes, counts and addresses: what they read, and that they write what they read."""

from __future__ import annotations

import pickle  # noqa: TID251  # what Ray does with an actor's arguments

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.values import INFINITY, Bind, Count, Duration, Size


@pytest.mark.parametrize(
    ("raw", "ms"),
    [
        ("100ms", 100),
        ("10s", 10_000),
        ("15m", 900_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("1.5s", 1500),
        ("10", 10_000),
        (10, 10_000),
        (0.25, 250),
        (0, 0),
        ("0s", 0),
        (" 3 s ", 3000),
        ("infinity", INFINITY),
    ],
)
def test_a_duration_reads_units_and_plain_seconds(raw: object, ms: int) -> None:
    """A duration is milliseconds inside, whatever unit it came in."""
    assert Duration.parse(raw) == ms


@pytest.mark.parametrize("raw", ["", "s", "7 days", "-1s", -1, "1h30m", True, None, [1], "0.0001s", "1e3s", float("nan"), float("inf")])
def test_what_is_no_duration_is_refused(raw: object) -> None:
    """Text that could be misread, negative times and fractions of a millisecond are refused, never rounded."""
    with pytest.raises(ValueError):
        Duration.parse(raw)


@pytest.mark.parametrize(
    ("raw", "size"), [("64MiB", 64 * 2**20), ("100KB", 100_000), ("1.5KiB", 1536), (512, 512), ("512", 512), ("0B", 0), ("2GiB", 2**31)]
)
def test_a_size_reads_decimal_and_binary_units(raw: object, size: int) -> None:
    """KB is a thousand bytes and KiB is 1024; a number alone is bytes."""
    assert Size.parse(raw) == size


@pytest.mark.parametrize("raw", ["64mb", "1 M", "-5B", 1.5, "0.5B", False, "64MiB/s"])
def test_what_is_no_size_is_refused(raw: object) -> None:
    """Units of another spelling are refused: a guess about a size is wrong by 5 % or by a thousand."""
    with pytest.raises(ValueError):
        Size.parse(raw)


@given(st.integers(0, INFINITY))
def test_every_duration_size_and_count_reads_what_it_writes(number: int) -> None:
    """parse(str(value)) is value, also above 2**53 where a float would round."""
    assert Duration.parse(str(Duration(number))) == number
    assert Size.parse(str(Size(number))) == number
    assert Count.parse(Count(number).to_plain()) == number


def test_a_count_takes_whole_numbers_and_infinity_only() -> None:
    """True, 1.0 and "5" are not counts; "infinity" is larger than any."""
    assert Count.parse("infinity").is_infinite
    assert Count.parse("infinity") > 10**18
    for raw in (True, 1.0, "5", None):
        with pytest.raises(ValueError):
            Count.parse(raw)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:1883", "127.0.0.1", 1883), ("[::1]:0", "::1", 0), ("broker-1.local:65535", "broker-1.local", 65535)],
)
def test_an_address_gives_host_and_port(text: str, host: str, port: int) -> None:
    """IPv6 addresses stand in brackets and come out without them."""
    bind = Bind.parse(text)
    assert (bind.host, bind.port) == (host, port)


@pytest.mark.parametrize("raw", ["1883", 1883, ":1883", "host", "host:", "host:65536", "::1:1883", "[zz]:1883", "a b:1"])
def test_what_is_no_address_is_refused(raw: object) -> None:
    """A port without a host is refused: it would have to mean all networks, and that should be written."""
    with pytest.raises(ValueError):
        Bind.parse(raw)


def test_values_are_plain_numbers_to_their_users_and_travel_between_processes() -> None:
    """A duration adds like an int, and Ray's serializer gives back the same type."""
    wait = Duration.parse("3s")
    assert wait + 1 == 3001
    assert (wait.ms, wait.seconds) == (3000, 3.0)
    again = pickle.loads(pickle.dumps(wait))
    assert type(again) is Duration
    assert str(again) == "3s"
