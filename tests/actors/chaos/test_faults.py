"""Faults on purpose as they lie in the run directory, and what alarms and commands read of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from actors.alarms import Alarm, raise_alarm, read_alarms
from actors.chaos.faults import LONGEST_S, Fault, Member, Target, active_faults, forget_fault, write_fault, written_faults
from actors.processes import ProcessId

SITE_ID = "0d6bb5e63c0d6bb5"


def fault(id: str = "a", seconds: float = 60.0, targets: tuple[str, ...] = ("shard",), **more: object) -> Fault:
    return Fault(id, more.pop("kind", "disk-full"), targets, time.monotonic() + seconds, "somebody", **more)  # type: ignore[arg-type]


def test_a_fault_is_read_as_it_was_written_until_it_is_forgotten(tmp_path: Path) -> None:
    """With everything that it says."""
    one = fault("a", processes=(ProcessId(7, 8),), kind="pause")
    other = fault("b", targets=("gateway-0", "shard"), kind="partition", one_way=True, delay_ms=3)
    for each in (other, one):
        write_fault(tmp_path, each)
    assert written_faults(tmp_path) == active_faults(tmp_path) == [one, other]
    forget_fault(tmp_path, one)
    forget_fault(tmp_path, one)
    assert written_faults(tmp_path) == [other]


def test_nobody_honours_a_fault_whose_time_is_up_or_never_comes(tmp_path: Path) -> None:
    """Also not one of another boot, whose clock was far ahead."""
    for each in (fault("a", -0.001), fault("b", LONGEST_S + 60)):
        write_fault(tmp_path, each)
    assert len(written_faults(tmp_path)) == 2 and active_faults(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "disk-full"}'])
def test_what_is_no_fault_breaks_nothing(tmp_path: Path, text: str) -> None:
    """Half a file, or one of another version."""
    (tmp_path / "chaos-x.fault").write_text(text)
    assert written_faults(tmp_path) == []


def test_a_target_is_a_role_or_one_of_it() -> None:
    """Names of links have an incarnation behind them."""
    assert Target.parse("shard") == Target("shard") and Target.parse("shard-12") == Target("shard", 12)
    assert [str(Target.parse(each)) for each in ("shard", "gateway-0")] == ["shard", "gateway-0"]
    shard, one = Target("shard"), Target("shard", 1)
    assert shard.fits(Member.of("shard-3")) and shard.fits(Member.of("shard-3:00ff")) and not shard.fits(Member.of("session-3"))
    assert [one.fits(Member.of(name)) for name in ("shard-1:00ff", "shard-1@ab:00", "shard-11", "shard-0")] == [True, True, False, False]
    assert Target("all").fits(Member.of("admin-0"))


def test_a_site_is_known_by_the_names_of_its_processes() -> None:
    """Those of replicas too, which have no role in them: that is the link's."""
    target = Target.parse("site-0D6BB5E63C0D6BB5")
    assert target == Target("site", None, SITE_ID) and str(target) == f"site-{SITE_ID}" and Target.parse("site-0") == Target("site", 0)
    for name in (f"gateway-1@{SITE_ID}:00ff", f"{SITE_ID}/copy"):
        assert target.fits(Member.of(name)) and not target.fits(Member.of(name.replace("0", "1")))
    assert Member.of(f"{SITE_ID}/copy", "replica") == Member.of(f"{SITE_ID}/copy", "shard") == Member("shard", None, SITE_ID)
    assert not target.fits(Member.of("gateway-1:00ff"))


def test_what_is_broken_is_an_alarm_for_as_long_as_it_is(tmp_path: Path) -> None:
    """One for each target, behind the others, in a sentence that says who and for how long."""
    raise_alarm(tmp_path, Alarm("shard-0", "clock", "a"))
    for each in (
        fault("a"),
        fault("b", kind="slow-disk", delay_ms=200),
        fault("c", -1),
        fault("d", targets=("gateway", "shard"), kind="partition"),
    ):
        write_fault(tmp_path, each)
    first, shard, gateway = read_alarms(tmp_path)
    assert (first.kind, shard.kind, gateway.kind, shard.name, gateway.name) == ("clock", "chaos", "chaos", "shard", "gateway")
    assert "takes nothing, for 60 s more" in shard.cause and "takes 200 ms more, for 60 s more" in shard.cause
    assert gateway.cause == "on purpose (`holdfast chaos`, by somebody): gateway and shard are cut off from each other, for 60 s more"


def test_one_way_says_which_way() -> None:
    """Else it would be the same sentence."""
    found = fault(targets=("gateway-0", "shard"), kind="partition", one_way=True)
    assert "nothing that gateway-0 sends reaches shard, for 5 s more" in found.sentence(found.until_s - 5)
