"""A shard that sees what it has written only when it is committed keeps every promise: it needs nothing over its engine but its draft."""

from __future__ import annotations

import pytest

from tests.sim import declaring_hunt, delaying_hunt, replaying_hunt, revoking_hunt, sharing_hunt, tooling_hunt
from tests.sim.late import ALL, Late
from tests.sim.late_hunt import LATE, once
from tests.sim.planting import Planted
from tests.sim.simulation import run

OTHERS = (declaring_hunt.once, delaying_hunt.once, replaying_hunt.once, revoking_hunt.once, sharing_hunt.once, tooling_hunt.once)


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(2))
def test_nothing_is_read_before_it_is_committed(tens: int) -> None:
    """All rules of the ordinary worlds; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        once(seed)


@pytest.mark.slow
def test_nor_by_groups_delayed_messages_replays_rules_and_tools() -> None:
    """Three histories of each other kind of world."""
    for other in OTHERS:
        for seed in range(3):
            other(seed, Late())


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_what_reads_early_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = LATE.known_first(fault)
    assert 0 <= catch.seed < LATE.seeds_max, catch.why


@pytest.mark.needs("interpreted")
@pytest.mark.slow
def test_a_draft_that_forgets_early_is_found_here_only() -> None:
    """Where the engine has a record at once, the same fault is none: it is these worlds that see it."""
    fault, catch = ALL[0], LATE.known_first(ALL[0])

    class AtOnce(fault):  # type: ignore[misc, valid-type]
        late = False

    run(catch.seed, plant=AtOnce())
