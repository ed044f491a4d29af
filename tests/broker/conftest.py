"""The fixture that gives a module its broker.

A module says how it wants its broker by ``pytestmark = pytest.mark.parametrize("broker",
[Options(...), ...], indirect=True)``; without that it gets one with every default and no dashboard of Ray.
Timeouts come from tests/conftest.py: every test below this directory has one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.running import QUIET_RAY, Options, RunningBroker


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """One broker for the module; at its end it is taken down, and a process that stays behind is a failure."""
    options = getattr(request, "param", None) or Options(QUIET_RAY)
    assert isinstance(options, Options), f"broker wants tests.broker.running.Options, found {options!r}"
    with RunningBroker(options) as running:
        yield running
