"""Five thousand connections that send what no client should, to a real broker; `make fuzz` sends a million."""

from __future__ import annotations

import pytest

from tests.broker.fuzzing import OPTIONS, Campaign
from tests.broker.running import RunningBroker

CASES = 5_000
FIRST = 1_000_000
"""Other ones than tests/fuzz tries inside a process."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("broker", [OPTIONS], indirect=True)
def test_nothing_that_a_client_sends_harms_a_broker(broker: RunningBroker) -> None:
    """Every process lives on, no log names an error, each is answered as its version has it, and an honest client is served."""
    Campaign(broker, FIRST, FIRST + CASES).run()
