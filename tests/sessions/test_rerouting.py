"""Routes are added again when a shard was begun anew by force: the session actor's part (sessions/rerouting.py)."""

from __future__ import annotations

import pytest

from sessions.options import SessionOptions
from shards.engine import HOME_FAMILY, Op
from shards.ids import home_of_sub, stands_for
from shards.rows import ROUTE, pack_row, successor, u64, unpack_row
from tests.sessions.real_shards import NEVER_MS, Broker
from tests.shards.harness import G

CLIENTS = [b"client-%d" % number for number in range(4)]
FILTERS = [b"t/%d" % number for number in range(60)]


def routes(broker: Broker, shard: int) -> dict[int, bytes]:
    rows = broker.shards[shard].engine.scan(HOME_FAMILY, ROUTE, successor(ROUTE), 10_000)
    return {int.from_bytes(key[1:], "big"): unpack_row(value)[0] for key, value in rows}


def filled(several_sites: bool = True) -> Broker:
    """Sessions at home in both shards, with more routes than one page has."""
    broker = Broker(options=SessionOptions(gc_interval_ms=NEVER_MS, several_sites=several_sites))
    broker.start_owner()
    broker.rest()
    for client in CLIENTS:
        broker.subscribe(broker.connect(client, 600), *FILTERS, b"wild/+/" + client)
    assert {home_of_sub(sub_id) for sub_id in routes(broker, 0)} == {0, 1}
    return broker


def begin_anew(broker: Broker, shard: int) -> None:
    """Without the routes that it had, and with what stands for them; every process begins anew."""
    broker.kill_owner()
    h = broker.shards[shard]
    ops: list[Op] = [(HOME_FAMILY, ROUTE + u64(sub_id), None) for sub_id in routes(broker, shard)]
    ops += [(HOME_FAMILY, ROUTE + u64(stands_for(home)), pack_row((b"#", b""))) for home in range(broker.n_shards)]
    h.engine.write(ops)
    h.reopen()
    h.link(G, "gateway", "g0:b")


@pytest.mark.slow
def test_every_route_is_added_again_and_what_stood_for_them_is_removed() -> None:
    """Of both homes, in more than one page."""
    for shard in (0, 1):
        broker = filled()
        before = [routes(broker, each) for each in (0, 1)]
        begin_anew(broker, shard)
        broker.start_owner()
        broker.rest()
        assert [routes(broker, each) for each in (0, 1)] == before
        assert broker.core.counters.rerouted == 2


@pytest.mark.slow
def test_what_stands_for_routes_stays_until_all_shards_have_answered() -> None:
    """Also over the death of the owner: the next one begins again."""
    broker = filled()
    before = routes(broker, 0)
    begin_anew(broker, 0)
    broker.start_owner()
    broker.away(1)
    broker.rest()
    assert {stands_for(0), stands_for(1)} <= routes(broker, 0).keys(), "everything is stored"
    broker.kill_owner()
    broker.start_owner()
    broker.rest()
    assert routes(broker, 0) == before


@pytest.mark.slow
def test_of_one_site_nothing_is_asked() -> None:
    """No shard of it is ever begun anew while others go on."""
    broker = filled(several_sites=False)
    begin_anew(broker, 0)
    broker.start_owner()
    broker.rest()
    assert routes(broker, 0).keys() == {stands_for(0), stands_for(1)} and not broker.core.counters.rerouted
