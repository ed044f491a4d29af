"""Leadership that is forced: what was acknowledged by those who were given up may be lost, and nothing else, and copies never mix."""

from __future__ import annotations

from collections import Counter

import pytest

from shards.replication.configuration import NEVER_FORCED, Configuration, Transition, claimed, first, forced, rid_of, taken_over, targeted
from shards.replication.events import Propose, Proposed, Received, RegisterRead, Send, Superseded, Tick
from shards.replication.messages import Append, Hello
from shards.replication.own import Own
from shards.replication.ports import Outcome
from tests.contracts.planting import Fault, Planting, faults
from tests.replication.forcing import Forcing
from tests.replication.simulation import run
from tests.replication.test_replica import Bench, record
from tests.replication.world import Violation

SEEDS = 40
A, B, C = (rid_of(name, "1") for name in "abc")
LED = taken_over(first(frozenset((A, B, C)), "n"), A, "n1")
FORCED = forced(LED, C, ("b", "c"), 5, "n2")
ASKED = claimed(FORCED, Transition("add", "b"), "n3")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_nothing_is_lost_but_what_was_given_up_whatever_breaks(part: int) -> None:
    """Each part sees leaders that were in sync, leaders that were not, and copies of before that come back."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS * part, SEEDS * (part + 1)):
        happened.update(run(seed, Forcing).happened)
    for what in ("forced in sync", "forced with loss", "superseded", "install", "power cut"):
        assert happened[what], f"seeds of part {part} have no {what!r}"


def a_copy_of_before_takes_part(planting: Planting) -> None:
    def planted(self: Own, cfg: Configuration) -> bool:
        return False

    def asks(self: Own, cfg: Configuration) -> None:
        for rid in sorted(cfg.replicas):
            self.send(rid, Hello(self.writing.log.last, cfg.incarnation))

    planting.replace(Own, "is_of_before", planted)
    planting.replace(Own, "ask_to_join", asks)


def a_new_copy_hears_leaders_of_before(planting: Planting) -> None:
    """It says that it is of the incarnation that it is asked into, and promises nothing."""
    before = Own.is_of_before

    def planted(self: Own, cfg: Configuration) -> bool:
        return before(self, cfg) and self.writing.log.last > 0

    def asks(self: Own, cfg: Configuration) -> None:
        if not before(self, cfg) or not self.writing.log.last:
            for rid in sorted(cfg.replicas):
                self.send(rid, Hello(self.writing.log.last, cfg.incarnation))

    planting.replace(Own, "is_of_before", planted)
    planting.replace(Own, "ask_to_join", asks)


@pytest.mark.slow
@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("fault", faults(a_copy_of_before_takes_part, a_new_copy_hears_leaders_of_before), ids=lambda fault: fault.name)
def test_a_fault_of_incarnations_is_found(fault: Fault) -> None:
    """By ordinary seeds."""
    with fault.planted() as planting:
        assert not all(_holds(seed) for seed in range(400))
    assert planting.times


def _holds(seed: int) -> bool:
    try:
        run(seed, Forcing)
    except Violation:
        return False
    return True


def test_who_was_forced_takes_over_at_once_under_the_new_incarnation() -> None:
    """It promises the incarnation together with the epoch, and goes on from its own log."""
    bench = Bench(C)
    bench.bring(Tick(0))
    bench.sync()
    bench.hear(A, record(1, 5))
    (proposal,) = [effect.new for effect in bench.bring(Tick(1), RegisterRead(FORCED)) if isinstance(effect, Propose)]
    assert (proposal.epoch, proposal.incarnation, proposal.forced) == (3, 2, FORCED.forced)
    bench.bring(Proposed(proposal, Outcome.DONE))
    assert (bench.log.promised, bench.log.incarnation, bench.log.last) == (3, 2, 2)


def test_a_copy_that_was_given_up_takes_no_part_any_more() -> None:
    """Also when its site shall have a copy again: it is to be another one."""
    bench = Bench(B)
    bench.bring(Tick(0))
    bench.sync()
    bench.hear(A, record(1, 5))
    for read in (FORCED, ASKED):
        assert bench.bring(RegisterRead(read))[-1] == Superseded(2)
    assert not [effect for effect in bench.bring(Tick(60)) if isinstance(effect, Send)]


def test_a_copy_that_is_new_joins_the_incarnation_and_hears_no_leader_of_before() -> None:
    """Before it says so."""
    new = rid_of("b", "2")
    bench = Bench(new)
    bench.bring(Tick(0), RegisterRead(ASKED))
    assert Send(C, Hello(0, 2)) in bench.bring(Tick(60))
    assert (bench.log.promised, bench.log.incarnation) == (ASKED.epoch, 2)
    bench.sync()
    answers = bench.hear(A, record(1, 5), epoch=1)
    assert bench.log.last == 0 and not [each for each in answers if isinstance(each, Append)]


def test_a_learner_of_before_is_not_served() -> None:
    """Its log may differ from where leadership was forced."""
    leader = Bench(C)
    (proposal,) = [effect.new for effect in leader.bring(Tick(0), RegisterRead(FORCED)) if isinstance(effect, Propose)]
    leader.bring(Proposed(proposal, Outcome.DONE))
    leader.sync()
    leader.bring(RegisterRead(claimed(targeted(proposal, ("b", "c"), "n4"), Transition("add", "b"), "n5")))
    for incarnation, served in ((NEVER_FORCED, False), (2, True)):
        hello = Hello(0, incarnation)
        leader.bring(Received(rid_of("b", "2"), hello))
        assert any(isinstance(each, Send) and isinstance(each.message, Append) for each in leader.bring(Tick(3000 * incarnation))) is served
