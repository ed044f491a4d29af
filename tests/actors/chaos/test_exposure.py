"""What a process makes of the faults that it finds: which links it cuts, holds and lets go, and what it says of its disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from actors.chaos.exposure import CUT, Exposure
from actors.chaos.faults import Fault, forget_fault, write_fault


class FakeLink:
    def __init__(self, peer_name: str, name: str = "") -> None:
        self.name = name
        self.role = name.partition("-")[0]
        self.peer_name = peer_name
        self.peer_role = peer_name.partition("-")[0] if "/" not in peer_name else "replica"
        self.lost = False
        self.told: list[str] = []

    def close(self, why: str) -> None:
        self.told.append(why)
        self.lost = True

    def hold(self) -> None:
        self.told.append("hold")

    def release(self) -> None:
        self.told.append("release")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def partition(first: str, second: str, *, one_way: bool = False) -> Fault:
    return Fault("p", "partition", (first, second), time.monotonic() + 60, "somebody", one_way=one_way)


def test_both_ways_cuts_what_is_up_and_admits_nothing_new(tmp_path: Path) -> None:
    """On both sides, and nobody else's links; when it is over all are admitted again."""
    for name, peer, other in (("shard-0", "gateway-1:00", "session-0:00"), ("gateway-1", "shard-0:00", "session-0:00")):
        exposure = Exposure(tmp_path, [name])
        cut, spared = FakeLink(peer), FakeLink(other)
        assert exposure.admits(cut) and exposure.admits(spared)
        fault = partition("gateway-1", "shard")
        write_fault(tmp_path, fault)
        exposure.look()
        assert (cut.told, spared.told) == ([CUT], [])
        assert not exposure.admits(FakeLink(peer)) and exposure.admits(FakeLink(other))
        forget_fault(tmp_path, fault)
        exposure.look()
        assert exposure.admits(FakeLink(peer))


def test_parts_of_one_process_are_cut_off_from_each_other_at_the_ends_that_it_is_about(tmp_path: Path) -> None:
    """Both ends of a link are in it, and each is that of its own part."""
    exposure = Exposure(tmp_path, ["shard-0", "session-0", "gateway-0"])
    ends = {
        (name, peer): FakeLink(f"{peer}:00", f"{name}:00")
        for name in ("shard-0", "session-0", "gateway-0")
        for peer in ("shard-0", "session-0", "gateway-0")
        if name != peer
    }
    assert all(map(exposure.admits, ends.values()))
    write_fault(tmp_path, partition("gateway", "shard"))
    exposure.look()
    assert {pair for pair, link in ends.items() if link.told == [CUT]} == {("shard-0", "gateway-0"), ("gateway-0", "shard-0")}
    assert not exposure.admits(FakeLink("gateway-0:01", "shard-0:00")) and exposure.admits(FakeLink("gateway-0:01", "session-0:00"))


def test_one_way_the_second_side_reads_nothing_more_and_the_first_does(tmp_path: Path) -> None:
    """What was sent meanwhile is read when it is over, as after a network that loses packets."""
    second, first = Exposure(tmp_path, ["shard-0"]), Exposure(tmp_path, ["gateway-0"])
    from_gateway, from_shard = FakeLink("gateway-0:00"), FakeLink("shard-0:00")
    assert second.admits(from_gateway) and first.admits(from_shard)
    fault = partition("gateway", "shard", one_way=True)
    write_fault(tmp_path, fault)
    for exposure in (second, first, second):
        exposure.look()
    assert (from_gateway.told, from_shard.told) == (["hold"], [])
    assert not second.admits(FakeLink("gateway-0:00")) and first.admits(FakeLink("shard-0:00"))
    forget_fault(tmp_path, fault)
    second.look()
    second.look()
    assert from_gateway.told == ["hold", "release"]


def test_two_sites_are_cut_off_from_each_other_and_not_from_the_third(tmp_path: Path) -> None:
    """All their processes, replicas too; within a site all goes on."""
    here, there, third = "a" * 16, "b" * 16, "c" * 16
    exposure = Exposure(tmp_path, ["shard-0"], here)
    links = {site: [FakeLink(f"gateway-0@{site}:00"), FakeLink(f"{site}/copy")] for site in (here, there, third)}
    assert all(exposure.admits(link) for each in links.values() for link in each)
    write_fault(tmp_path, partition(f"site-{here}", f"site-{there}"))
    exposure.look()
    assert [link.told for link in links[there]] == [[CUT], [CUT]]
    assert [link.told for site in (here, third) for link in links[site]] == [[]] * 4
    assert not exposure.admits(FakeLink(f"{there}/other")) and exposure.admits(FakeLink(f"{third}/other"))


def test_the_time_of_a_fault_counts_though_nobody_looks(tmp_path: Path) -> None:
    """A loop that stands still has its disk back all the same."""
    exposure = Exposure(tmp_path, ["shard-0"])
    write_fault(tmp_path, Fault("f", "disk-full", ("shard",), time.monotonic() + 60, "somebody"))
    slow = Fault("s", "slow-disk", ("shard-0",), time.monotonic() + 60, "somebody", delay_ms=200)
    write_fault(tmp_path, slow)
    write_fault(tmp_path, replace(slow, id="t", delay_ms=100))
    exposure.look()
    assert exposure.full() and exposure.delay_s() == 0.2
    over = time.monotonic() + 61
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("actors.chaos.exposure.time.monotonic", lambda: over)
        assert not exposure.full() and exposure.delay_s() == 0.0


def test_the_faults_of_others_are_none_of_ours(tmp_path: Path) -> None:
    """Of another index, of another role."""
    exposure = Exposure(tmp_path, ["shard-1"])
    write_fault(tmp_path, Fault("f", "disk-full", ("shard-0",), time.monotonic() + 60, "somebody"))
    write_fault(tmp_path, Fault("g", "slow-disk", ("gateway",), time.monotonic() + 60, "somebody", delay_ms=200))
    exposure.look()
    assert not exposure.full() and exposure.delay_s() == 0.0


def test_each_fault_is_in_the_log_of_whom_it_is_about_once(tmp_path: Path) -> None:
    """When it begins and when it ends, with who did it."""
    exposure = Exposure(tmp_path, ["shard-0"])
    fault = Fault("f", "disk-full", ("shard",), time.monotonic() + 60, "somebody")
    with structlog.testing.capture_logs() as logged:
        exposure.look()
        write_fault(tmp_path, fault)
        exposure.look()
        exposure.look()
        forget_fault(tmp_path, fault)
        exposure.look()
    assert [(line["event"], line["by"]) for line in logged] == [("chaos.began", "somebody"), ("chaos.ended", "somebody")]
