"""Ports of brokers of tests."""

from __future__ import annotations

from tests.broker.running import free_port, free_run


def test_no_port_is_given_twice() -> None:
    """Though nobody listens on the first yet: two sites of a test were told the same, and one did not start."""
    single = [free_port() for _ in range(1000)]
    runs = [port for first in (free_run(10) for _ in range(50)) for port in range(first, first + 10)]
    assert len({*single, *runs}) == 1500
