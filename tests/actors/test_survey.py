"""The survey of all durable sessions: it finds who is how far behind, takes a share of a core, and comes when it is wanted."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from actors.admin.pace import REST_IN_THREAD_MAX_S, Ended, Pace
from actors.admin.survey import Survey
from actors.inquiry.asking import Asking
from actors.inquiry.lag import Lag
from actors.metrics import of_survey
from actors.metrics.names import Metric
from actors.metrics.of_survey import LAG_BOUNDS, LOSS_BOUNDS, TOP, Surveyed
from config.admin import Admin
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop

WITHIN_S = 60.0
DAY_MS = 86_400_000


def admin(interval: str, name_clients: bool = False) -> Admin:
    return Admin.model_validate({"survey_interval": interval, "name_clients": name_clients})


async def away(broker: OneLoop, client: str, filter: str) -> None:
    """A session that has subscribed and is gone."""
    hand = await Hand.connect(broker.port, client, 5)
    await hand.subscribe(filter, 1)
    await hand.close()
    await broker.forgotten(client)


@pytest.mark.slow
async def test_a_survey_finds_who_is_behind_and_by_how_much(tmp_path: Path) -> None:
    """Over all shards and pages; the worst first, the best not among them; a second one finds what has come since."""
    async with OneLoop(tmp_path, n_shards=2) as broker, Asking(broker.topology, within=WITHIN_S) as asking:
        survey = Survey(broker.topology, admin("infinity"))
        for number in range(TOP + 3):
            await away(broker, f"c{number}", f"a/{number}")
        publisher = await Hand.connect(broker.port, "p", 5, expiry_s=0)
        for number in range(TOP + 3):
            await publisher.published(f"a/{number}", *(["x"] * number))
        found = await survey.survey(asking)
        assert (found.sessions, found.behind, found.missing) == (TOP + 3, TOP + 2, ())
        assert [(lag.client, lag.messages) for lag in found.furthest] == [(f"c{n}", n) for n in range(TOP + 2, 0, -1)]
        assert all(lag.subscriptions == () for lag in found.furthest)
        assert LAG_BOUNDS[:4] == (0, 1, 10, 100) and found.by_lag == (1, 2, 11, *[TOP + 3] * 6)
        # The generation is written to, so a whole period is left.
        assert {lag.loss_in_ms for lag in found.soonest} == {7 * DAY_MS} and found.by_loss[LOSS_BOUNDS.index(7 * 86_400)] == TOP + 2
        assert found.oldest_at_ms is not None and found.oldest_at_ms <= found.ended_at_ms and found.began_at_ms <= found.ended_at_ms
        await publisher.published("a/0", *(["x"] * 20))
        await publisher.close()
        again = await survey.survey(asking)
        assert again.furthest[0].client == "c0" and again.furthest[0].messages == 20 and again.behind == TOP + 3


@pytest.mark.slow
async def test_who_is_away_is_left_out_and_counted(tmp_path: Path) -> None:
    """The sessions of the others are there."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        for number in range(8):
            await away(broker, f"c{number}", "a")
        await broker.shards[1].stop()
        async with Asking(broker.topology, within=2) as asking:
            found = await Survey(broker.topology, admin("infinity")).survey(asking)
        assert found.missing == ("shard-1",) and 0 < found.sessions < 8
        assert values(found)[of_survey.AWAY.name,] == 1


@pytest.mark.slow
async def test_it_comes_when_it_is_wanted(tmp_path: Path) -> None:
    """Not with infinity; after the interval when that is set, and again; it ends when it is told to."""
    async with OneLoop(tmp_path) as broker:
        await away(broker, "c", "a")
        survey = Survey(broker.topology, admin("infinity"))
        survey.start()
        await asyncio.sleep(0.01)
        assert survey.last is None and list(survey.values()) == []
        survey.reconfigure(admin("1s"))
        first = await until_after(survey, None)
        assert first.sessions == 1
        assert (await until_after(survey, first)).began_at_ms >= first.ended_at_ms
        await survey.stop()


async def until_after(survey: Survey, before: Surveyed | None) -> Surveyed:
    deadline = time.monotonic() + WITHIN_S
    while survey.last is before or survey.last is None:
        assert time.monotonic() < deadline, "no survey"
        await asyncio.sleep(0.01)
    return survey.last


# ---------------------------------------------------------------------- as metrics


def lag(client: str, messages: int, loss_in_ms: int | None) -> Lag:
    return Lag(client, False, messages, True, messages, 0, None, loss_in_ms, False, (), messages * 10, messages * 1_000)


def values(surveyed: Surveyed, name_clients: bool = False, now_ms: int = 11_000) -> dict[tuple[str, ...], float]:
    found: list[tuple[Metric, tuple[str, ...], float]] = list(of_survey.of_survey(surveyed, now_ms, name_clients))
    return {(metric.name, *labels): value for metric, labels, value in found}


def test_ranks_are_told_and_names_only_when_they_are_wanted() -> None:
    """Nobody is asked at /metrics who he is."""
    lags = (lag("c1", 50, 5_000), lag("c2", 20, 3_000))
    by_lag, by_loss = (0, 0, 0, *[2] * (len(LAG_BOUNDS) - 2)), (2,) * (len(LOSS_BOUNDS) + 1)
    surveyed = Surveyed(1_000, 4_000, 2, 2, by_lag, by_loss, lags, lags[::-1], 500, ())
    found = values(surveyed)
    assert found[of_survey.LAG.name, "1", ""] == 50 and found[of_survey.LAG.name, "2", ""] == 20
    assert found[of_survey.BYTES.name, "1", ""] == 500 and found[of_survey.SECONDS.name, "2", ""] == 20
    assert found[of_survey.LOSS.name, "1", ""] == 3 and found[of_survey.LOSS.name, "2", ""] == 5
    assert found[of_survey.BY_LAG.name, "10.0"] == 0 and found[of_survey.BY_LAG.name, "+Inf"] == 2
    assert found[of_survey.BY_LOSS.name, "60.0"] == 2
    assert (found[of_survey.AGE.name,], found[of_survey.TOOK.name,], found[of_survey.OLDEST.name,]) == (10, 3, 10.5)
    assert not [key for key in found if "c1" in key]
    many = replace(surveyed, furthest=lags * TOP)
    assert len([key for key in values(many) if key[0] == of_survey.LAG.name]) == TOP
    named = values(surveyed, name_clients=True)
    assert named[of_survey.LAG.name, "1", "c1"] == 50 and named[of_survey.LOSS.name, "1", "c2"] == 3


# ---------------------------------------------------------------------- its share


async def test_work_and_rest_are_as_the_share_says() -> None:
    """Short rests in threads, and what they leave is owed; what is called off ends at the next."""
    now, slept = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        assert seconds <= REST_IN_THREAD_MAX_S
        now, slept = now + seconds, slept + seconds

    pace = Pace(0.1, clock=lambda: now, sleep=sleep)
    now += 0.001
    pace.rest()
    assert slept == 0
    for _ in range(99):
        now += 0.001
        pace.rest()
    assert slept == pytest.approx(0.9, abs=0.02)
    now += 1.0
    for _ in range(100):
        pace.rest()
    assert slept == pytest.approx(9.9, abs=0.02)
    pace.ended = True
    with pytest.raises(Ended):
        pace.rest()


async def test_what_is_owed_is_rested_on_the_loop() -> None:
    """By whoever pauses there."""
    now = 0.0
    pace = Pace(0.5, clock=lambda: now, sleep=lambda _: None)
    now = 0.01
    began = time.monotonic()
    await pace.pause()
    assert time.monotonic() - began >= 0.009
