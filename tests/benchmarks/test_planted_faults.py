"""The generator finds exactly the faults that a broker was told to make, through real sockets and real worker processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import wire
from benchmarks.clients import Endpoint
from benchmarks.load import Target, run
from benchmarks.outcome import Result
from benchmarks.scenarios import Options
from benchmarks.workers import RunFailed
from tests.benchmarks.faulty_broker import Faults, FaultyBroker

SHORT = Options(seconds=0.1, publishers=2, window=16, payload_bytes=32, stall_s=20, hard_s=120, coalesce_us=0, ephemeral=True)
STALLS_S = (0.5, 5.0, 20.0)
"""Where something never comes it is waited for so long; the longer ones where a slow machine left out something else, too."""

pytestmark = pytest.mark.slow


def measure(faults: Faults, scenario: str, options: Options, tmp_path: Path, version: wire.Version = 4) -> Result:
    with FaultyBroker(faults) as broker:
        target = Target("faulty", "1", Endpoint("127.0.0.1", broker.port, version), {}, None, tmp_path)
        (record,) = run(scenario, target, options)
    return record.result


def measure_what_lacks(
    faults: Faults, options: Options, tmp_path: Path, holds: Callable[[Result], bool], version: wire.Version = 4
) -> Result:
    """With a patience in which all the rest has come, if there is one."""
    first, *longer = STALLS_S
    result = measure(faults, "fan-in", replace(options, stall_s=first), tmp_path, version)
    for stall_s in longer:
        result = result if holds(result) else measure(faults, "fan-in", replace(options, stall_s=stall_s), tmp_path, version)
    return result


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_faultless_broker_has_a_clean_result(qos: wire.QoS, version: wire.Version, tmp_path: Path) -> None:
    """Every message of every QoS and version is acknowledged and delivered once."""
    result = measure(Faults(), "fan-in", replace(SHORT, qos=qos, topics=3), tmp_path, version)
    assert result.clean, result
    assert result.delivered == result.sent >= SHORT.window


def test_large_payloads_and_properties_are_sent_and_counted(tmp_path: Path) -> None:
    """Fewer go out at a time than a quarter of the window has; with MQTT 5, properties stand before the payload."""
    options = replace(SHORT, payload_bytes=65_536, window=64, properties=True)
    result = measure(Faults(), "fan-in", options, tmp_path, 5)
    assert result.clean, result
    assert result.delivered == result.sent > 0


def test_a_session_is_not_owed_what_others_wanted(tmp_path: Path) -> None:
    """This broker sends everything to everybody; in pairs each session is owed its own publisher's messages and got them."""
    result = measure(Faults(), "pairs", SHORT, tmp_path)
    assert result.lost == 0
    assert result.delivered == 2 * result.sent


@pytest.mark.parametrize(
    ("faults", "found"),
    [
        (Faults(lose=frozenset([5, 10])), (2, 0, 0)),
        (Faults(double=frozenset([5, 11, 12])), (0, 3, 0)),
        (Faults(swap_with_next=frozenset([5])), (0, 0, 1)),
        (Faults(lose=frozenset([3]), double=frozenset([7]), swap_with_next=frozenset([10])), (1, 1, 1)),
    ],
)
# All of them are in the first window, which is sent however slow the machine is.
def test_planted_faults_are_counted_one_for_one(faults: Faults, found: tuple[int, int, int], tmp_path: Path) -> None:
    """Lost, doubled, out of order; and a result with one of them is not clean."""

    def counted(result: Result) -> tuple[int, int, int]:
        return result.lost, result.duplicated, result.out_of_order

    result = measure_what_lacks(faults, replace(SHORT, publishers=1), tmp_path, lambda result: counted(result) == found)
    assert counted(result) == found
    assert not result.clean


def test_a_refused_message_is_not_lost(tmp_path: Path) -> None:
    """A reason code that means no is counted as refused, and nothing is due for it."""
    result = measure(Faults(refuse=frozenset([10, 11])), "fan-in", SHORT, tmp_path, version=5)
    assert (result.refused, result.lost, result.acked) == (2, 0, result.sent - 2)
    assert not result.clean


def test_a_missing_acknowledgement_ends_the_run_with_a_story(tmp_path: Path) -> None:
    """A window that never opens again does not hang the benchmark, and the message counts as delivered, not as lost."""
    result = measure_what_lacks(Faults(forget_ack=frozenset([30])), SHORT, tmp_path, lambda result: result.lost == 0)
    assert any("no acknowledgement" in story for story in result.stories)
    assert result.lost == 0


def test_a_connection_that_breaks_is_a_story(tmp_path: Path) -> None:
    """What the other publishers did is still reported."""
    result = measure_what_lacks(Faults(disconnect_at=30), SHORT, tmp_path, lambda result: bool(result.stories))
    assert result.stories
    assert not result.clean


def test_a_broker_that_is_not_there_gives_no_result(tmp_path: Path) -> None:
    """One sentence, no traceback."""
    with FaultyBroker() as broker:
        port = broker.port
    with pytest.raises(RunFailed, match="refused"):
        run("fan-in", Target("none", "", Endpoint("127.0.0.1", port, 4), {}, None, tmp_path), SHORT)
