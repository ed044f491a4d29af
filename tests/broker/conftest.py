"""The fixture that gives a module its broker.

A module says how it wants its broker by ``pytestmark = pytest.mark.parametrize("broker",
[Options(...), ...], indirect=True)``; without that it gets one with every default and no dashboard of Ray.
Timeouts come from tests/conftest.py: every test below this directory has one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.peer import hang_up


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """One broker for the module; at its end it is taken down, and a process that stays behind is a failure."""
    options = getattr(request, "param", None) or Options(QUIET_RAY)
    assert isinstance(options, Options), f"broker wants tests.broker.running.Options, found {options!r}"
    with RunningBroker(options) as running:
        yield running


@pytest_asyncio.fixture(autouse=True)
async def _no_peer_outlives_its_test() -> AsyncIterator[None]:
    yield
    hang_up()
