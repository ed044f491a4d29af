"""How parts are spread over processes: what `profile` takes, and what `auto` comes to."""

from __future__ import annotations

import pytest

from config.load import ConfigError, load
from tests.config.test_cluster import HERE, THREE


@pytest.mark.parametrize(
    ("sets", "cores", "compact"),
    [
        ((), 2, True),
        ((), 4, False),
        (("profile=spread",), 1, False),
        (("profile=compact",), 1, True),
        (("profile=compact", "durable_storage.messages.n_shards=4"), 64, True),
        (("profile=auto",), 1, True),
        (("profile=auto",), 2, True),
        (("profile=auto",), 3, False),
        (("profile=auto", "gateway.count=2"), 2, False),
        (("profile=auto", *THREE, HERE), 2, False),
    ],
)
def test_parts_share_a_process_where_that_was_said_or_there_are_few_cores(sets: tuple[str, ...], cores: int, compact: bool) -> None:
    """auto: of one site with one gateway."""
    assert load(sets=sets, environ={}).is_compact(cores) is compact


@pytest.mark.parametrize(
    ("sets", "wanted"),
    [
        (("gateway.count=2",), '"auto" or "spread" while gateway.count is 2'),
        ((*THREE, HERE), '"auto" or "spread" while n_sites is 3'),
    ],
)
def test_where_it_cannot_be_it_is_refused_in_one_sentence(sets: tuple[str, ...], wanted: str) -> None:
    """Several gateways would share one loop; several sites are not built that way."""
    with pytest.raises(ConfigError) as raised:
        load(sets=("profile=compact", *sets), environ={})
    assert len(raised.value.problems) == 1
    assert raised.value.problems[0].startswith("profile = ") and wanted in raised.value.problems[0]


@pytest.mark.parametrize(
    ("sets", "cores", "count"),
    [
        ((), 1, 1),
        ((), 4, 1),
        ((), 8, 2),
        ((), 256, 16),
        (("gateway.count=3",), 1, 3),
        (("profile=compact",), 64, 1),
        ((*THREE, HERE), 64, 1),
    ],
)
def test_there_is_a_gateway_for_every_four_cores_unless_told_otherwise(sets: tuple[str, ...], cores: int, count: int) -> None:
    """Not where they would share a loop, nor where the run of their ports is said to other sites."""
    assert load(sets=sets, environ={}).gateway_count(cores) == count
