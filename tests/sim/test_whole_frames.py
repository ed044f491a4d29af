"""Parts of one process hear frames as they are (actors.direct): every promise holds, and nobody changes what is another's too."""

from __future__ import annotations

import pytest

from tests.sim import declaring_hunt, delaying_hunt, replaying_hunt, revoking_hunt, roaming_hunt, sharing_hunt, tooling_hunt
from tests.sim.broker import Plant
from tests.sim.simulation import run

OTHERS = (
    declaring_hunt.once, delaying_hunt.once, replaying_hunt.once, revoking_hunt.once, roaming_hunt.once, sharing_hunt.once,
    tooling_hunt.once,
)  # fmt: skip


class Whole(Plant):
    """Nothing is wrong in it."""

    whole_frames = True


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(2))
def test_what_is_heard_as_it_is_is_changed_by_nobody(tens: int) -> None:
    """All rules of the ordinary worlds; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        run(seed, plant=Whole())


@pytest.mark.slow
def test_nor_of_groups_delayed_messages_replays_rules_and_tools() -> None:
    """Two histories of each other kind of world."""
    for other in OTHERS:
        for seed in range(2):
            other(seed, Whole())
