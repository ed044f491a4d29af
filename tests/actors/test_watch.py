"""The driver looks after the controller whatever Ray says: it is asked again, made anew, and never forgotten."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from actors.ports import Gone, Unavailable
from actors.topology import Role
from actors.watch import Watch
from tests.actors.test_launcher import Cluster, FakeMember

WITHIN_S = 60.0


class Refusing(Cluster):
    """Ray makes nothing when it is asked for the second time."""

    def create(self, role: Role, index: int) -> FakeMember:
        made = super().create(role, index)
        if self.log.count(f"create {role}-{index}") == 2:
            raise RuntimeError("the head is away")
        return made


async def _looked_three_times(cluster: Cluster) -> list[str]:
    """How often it has begun, and what was logged, when the controller was asked for its health three times more than it refused."""
    begun: list[str] = []
    asked = 3 + len(cluster.refusals.get("health controller-0", []))
    with capture_logs() as said:
        watching = asyncio.create_task(Watch(cluster, lambda: begun.append("begun"), pause=0).run())
        async with asyncio.timeout(WITHIN_S):
            while cluster.log.count("health controller-0") < asked:
                assert not watching.done(), watching
                await asyncio.sleep(0)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
    return [*begun, *(each["event"] for each in said)]


async def test_one_that_is_there_is_begun_and_asked_again_and_again() -> None:
    """Beginning is idempotent; who has begun is told each time, and nothing is logged."""
    cluster = Cluster()
    assert await _looked_three_times(cluster) == ["begun"] * 3
    assert cluster.log.count("create controller-0") == 1


async def test_one_that_does_not_answer_is_asked_again() -> None:
    """Ray is making it anew."""
    cluster = Cluster()
    cluster.refusals = {"begin controller-0": [Unavailable("it comes up")], "health controller-0": [Unavailable("it died")]}
    said = await _looked_three_times(cluster)
    assert said.count("controller.unavailable") == 2 and cluster.log.count("create controller-0") == 1


async def test_one_that_ray_has_given_up_is_made_anew() -> None:
    """Nobody else would."""
    cluster = Cluster()
    cluster.refusals["health controller-0"] = [Gone("for good")]
    assert (await _looked_three_times(cluster)).count("controller.gone") == 1
    assert cluster.log.count("create controller-0") == 2


@pytest.mark.parametrize(
    "refusal", [RuntimeError("what nobody has seen yet"), OSError(24, "Too many open files"), Gone("for good")], ids=type
)
async def test_whatever_ray_says_the_next_look_comes(refusal: Exception) -> None:
    """Also when it cannot be made at once: what raises is in the log, and the one before is asked again."""
    cluster = Refusing()
    cluster.refusals["begin controller-0"] = [refusal, Gone("for good")]
    said = await _looked_three_times(cluster)
    assert said.count("controller.not_looked_after") >= 1 and said.count("begun") >= 3
