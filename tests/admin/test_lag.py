"""Who is furthest behind, where there are so many sessions that nobody goes over them while somebody waits."""

from __future__ import annotations

from pathlib import Path

from actors.admin.app import make_app
from actors.admin.broker import Broker
from actors.admin.health import Health
from actors.admin.sessions import COUNTED_AT_ONCE_MAX
from actors.inquiry.lag import Lag
from actors.metrics.of_survey import Surveyed
from config.load import load
from tests.actors.places import topology_in
from tests.admin.asked import ask


async def test_with_many_sessions_the_answer_is_that_of_the_last_survey(tmp_path: Path) -> None:
    """As of its beginning, and naming who was away; no process is asked, and none is there here."""
    broker = Broker(topology_in(tmp_path), load(environ={}))
    lags = tuple([Lag(f"c{number}", False, 100 - number, True, 100 - number, 0, 1_000, 5_000, False, ()) for number in range(5)])
    broker.survey.last = Surveyed(1_000_000, 1_090_000, COUNTED_AT_ONCE_MAX + 1, 5, (), (), lags, lags, 1_000, ("shard-1",))
    answer = await ask(make_app(broker, Health(broker)), "/api/v5/lag?top=2")
    assert [(one["client"], one["messages"], one["loss_in_ms"]) for one in answer.json["data"]] == [("c0", 100, 5_000), ("c1", 99, 5_000)]
    assert answer.json["meta"]["as_of"] == "1970-01-01T00:16:40.000Z" and answer.json["meta"]["missing"] == ["shard-1"]
    await broker.close()
