"""What nobody waits for keeps company with the next turn (actors.pump): every promise holds, and nobody waits for long."""

from __future__ import annotations

import pytest

from tests.sim import declaring_hunt, delaying_hunt, replaying_hunt, revoking_hunt, sharing_hunt, tooling_hunt
from tests.sim.broker import Plant
from tests.sim.simulation import run

OTHERS = (declaring_hunt.once, delaying_hunt.once, replaying_hunt.once, revoking_hunt.once, sharing_hunt.once, tooling_hunt.once)


class Patient(Plant):
    """Nothing is wrong in it."""

    patient = True


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(4))
def test_acknowledgements_that_wait_for_company_cost_nothing(tens: int) -> None:
    """All rules of the ordinary worlds; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        run(seed, plant=Patient())


@pytest.mark.slow
def test_nor_of_groups_delayed_messages_replays_rules_and_tools() -> None:
    """Five histories of each other kind of world."""
    for other in OTHERS:
        for seed in range(5):
            other(seed, Patient())
