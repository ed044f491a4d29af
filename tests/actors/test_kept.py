"""What stays in the run directory when the driver is started again."""

from __future__ import annotations

from actors import origin, snapshot
from actors.access import publishing, secrets
from actors.supervisor import KEPT


def test_what_is_in_force_outlives_a_start_of_the_driver() -> None:
    """Settings, secrets and the access in force are of the run, not of one start in it: without them no token would be right."""
    assert {snapshot.NAME, secrets.NAME, publishing.NAME, origin.NAME} <= {*KEPT}
