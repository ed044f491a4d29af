"""An answer that was cut anywhere is an error, and its places are found."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast_spark.client import Client, Endpoint, NoReader, Unit
from tests.gates.gate_04_2_ranges import cut_plan
from tests.lake.proxy import CuttingProxy
from tests.lake.ranges import read_unit
from tests.lake.test_ranges import toy
from tests.lake.toy_reader import STORE, TOKEN, serving
from tests.lake.truncation import RawClient, parts, places

REQUEST = {"store": STORE, "shard": 0, "generation": 1, "from": 0, "to": 200, "filters": ["#"], "clients": None}
CLASSES = {"length", "kind", "head", "runs", "positions", "lengths", "values", "trailer"}


def test_the_parts_of_an_answer_fill_it() -> None:
    """One after the other, without a gap, every class among them."""
    with serving(toy()) as address:
        raw = RawClient(address, TOKEN)
        answer = raw.scan(REQUEST)
        assert raw.scan(REQUEST) == answer and raw.hello
        raw.close()
    found = list(parts(answer))
    assert found[0].start == 0 and found[-1].stop == len(answer)
    assert all(one.stop == two.start for one, two in pairwise(found))
    assert {part.name.split(": ")[1] for part in found} == CLASSES
    assert {place.name.split(": ")[1].split(" at ")[0] for place in places(answer)} == CLASSES
    assert [place.after for place in places(answer)] == sorted({place.after for place in places(answer)})


@pytest.mark.slow
def test_a_scan_that_was_cut_anywhere_raises() -> None:
    """At each place of each class; with the patience to ask again the same rows come all the same."""
    with serving(toy()) as address, CuttingProxy(lambda: address) as proxy:
        raw = RawClient(address, TOKEN)
        answer = raw.scan(REQUEST)
        raw.close()
        unit, endpoint = Unit(0, 1, 0, 200), Endpoint((proxy.address,), TOKEN)
        with Client(endpoint, patience_s=0.0) as client:
            whole = read_unit(client, STORE, unit)
            for place in places(answer):
                cut = proxy.cut_after(place.after)
                with pytest.raises(NoReader):
                    read_unit(client, STORE, unit)
                assert cut.done.is_set(), place
                assert read_unit(client, STORE, unit).same(whole)
        with Client(endpoint, patience_s=20.0) as client:
            for place in places(answer)[::7]:
                client.hello()
                proxy.cut_after(place.after)
                assert read_unit(client, STORE, unit).same(whole), place


@pytest.mark.slow
def test_an_answer_of_one_frame_that_was_cut_anywhere_raises() -> None:
    """After each number of bytes; with patience the same plan comes."""
    with serving(toy()) as address, CuttingProxy(lambda: address) as proxy:
        raw = RawClient(address, TOKEN)
        answer = raw.ask("PLAN", {"from": {"0": 0}, "to": {"0": 200}})
        raw.close()
        endpoint = Endpoint((proxy.address,), TOKEN)
        with Client(endpoint, patience_s=0.0) as impatient, Client(endpoint, patience_s=20.0) as patient:
            for after in range(0, len(answer), 20):
                cut_plan(proxy, impatient, patient, Unit(0, 1, 0, 200), after)
        assert proxy.cuts == 2 * len(range(0, len(answer), 20))
