"""When the answer for a topic has to be found anew."""

from __future__ import annotations

import pytest

from shards.draft import Draft
from shards.engine_memory import MemoryEngine
from shards.routes import Routes


@pytest.mark.parametrize("topic_filter", [b"fleet/#", b"fleet/7/state"])
def test_a_further_session_on_a_filter_changes_no_answer(topic_filter: bytes) -> None:
    """The first one does, and when the last has gone."""
    engine = MemoryEngine()
    routes = Routes(engine)
    draft = Draft(engine)
    stamps = [routes.generation]
    for sub_id in (1, 2, 3):
        routes.add(draft, sub_id, topic_filter)
        stamps.append(routes.generation)
    assert routes.wanted(b"fleet/7/state") and not routes.wanted(b"fleets/7/state")
    for sub_id in (2, 1, 3):
        routes.remove(draft, sub_id)
        stamps.append(routes.generation)
    assert not routes.wanted(b"fleet/7/state") and len(routes) == 0
    assert [stamp - stamps[0] for stamp in stamps] == [0, 1, 1, 1, 1, 1, 2]


def test_what_is_captured_counts_like_a_session() -> None:
    """Beside one on the same filter it changes nothing either."""
    engine = MemoryEngine()
    routes = Routes(engine)
    routes.capture("bridge", [b"fleet/#"])
    stamp = routes.generation
    routes.add(Draft(engine), 1, b"fleet/#")
    assert routes.generation == stamp
    routes.capture("bridge", [])
    assert routes.generation == stamp and routes.wanted(b"fleet/1")
    routes.capture("bridge", [b"yard/+"])
    assert routes.generation != stamp and routes.wanted(b"yard/1")
