"""What an oracle says in the end, for people and for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.ledger import KINDS, Fault, Kind, Ledger

_WORDS: dict[Kind, str] = {
    "lost": "acknowledged and never received",
    "repeated": "QoS 1 again without DUP",
    "twice": "QoS 2 more than once",
    "disorder": "out of order",
    "stranger": "never sent like that",
    "stale": "retained older than acknowledged",
    "forgotten": "sessions gone",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    run: str
    """Part of every client id and topic of the oracle."""
    seconds: float
    """From the first publish to the last."""
    sent: int
    acknowledged: int
    completed: int
    """QoS 2, to its PUBCOMP."""
    refused: int
    """Answered with an error: the broker did not take them, and owes nothing."""
    unanswered: int
    """Neither, until the oracle gave up waiting."""
    received: int
    again: int
    """Arrivals of what the reader had already."""
    looks: int
    """How often the retained message was looked at."""
    reconnects: int
    longest_silence_s: float
    """The longest that a publisher waited without any answer."""
    silent: str
    """Which."""
    settled_s: float
    """From the last publish until everybody had everything, or the oracle gave up."""
    counts: Mapping[Kind, int]
    """Of each kind of fault."""
    faults: tuple[Fault, ...]
    """The first of each kind."""
    absent: tuple[str, ...]
    """Clients that could not connect at the end, and why: what they are owed could not be judged."""
    left_behind: tuple[str, ...]
    """Sessions and retained messages that could not be erased: they end by themselves."""

    @property
    def kept(self) -> bool:
        """No promise was broken."""
        return not any(self.counts.values())

    @property
    def complete(self) -> bool:
        """Everything could be judged."""
        return not (self.unanswered or self.absent)

    def lines(self) -> list[str]:
        """For people; the first one is the verdict."""
        lost = self.counts["lost"]
        if lost:
            head = f"LOST: {lost} of {self.acknowledged} acknowledged messages"
        elif not self.kept:
            head = f"BROKEN: nothing was lost of {self.acknowledged} acknowledged messages, and another promise was broken"
        elif not self.complete:
            head = f"NOT PROVEN: nothing was lost of what could be judged of {self.acknowledged} acknowledged messages"
        else:
            head = f"KEPT: nothing was lost of {self.acknowledged} acknowledged messages"
        found = [
            head,
            f"  sent {self.sent} in {self.seconds:.0f} s; acknowledged {self.acknowledged} ({self.completed} of QoS 2 completed), "
            f"refused {self.refused}, without an answer {self.unanswered}",
            f"  received {self.received}, of them {self.again} again; retained looked at {self.looks} times; {self.reconnects} reconnects",
            f"  longest time without an acknowledgement {self.longest_silence_s:.1f} s ({self.silent or 'nobody'}); "
            f"everybody had everything {self.settled_s:.1f} s after the last message",
        ]
        if not self.complete:
            found[-1] = found[-1].partition(";")[0]
        found += [f"  {_WORDS[kind]}: {self.counts[kind]}" for kind in KINDS if self.counts[kind]]
        found += [f"    {fault.who}: {fault.text}" for fault in self.faults]
        found += [f"  could not connect: {each}" for each in self.absent]
        found += [f"  left behind, ends by itself: {each}" for each in self.left_behind]
        return found


def judge(
    ledger: Ledger, *, run: str, seconds: float, settled_s: float, reconnects: int, silence: tuple[float, str], absent: tuple[str, ...]
) -> Verdict:  # fmt: skip
    """Of a ledger that nothing is written into any more."""
    return Verdict(
        run=run, seconds=seconds, sent=len(ledger.sent), acknowledged=ledger.count(acknowledged=True), completed=ledger.completed,
        refused=ledger.count(acknowledged=False), unanswered=ledger.unanswered(), received=ledger.received, again=ledger.again,
        looks=ledger.looks, reconnects=reconnects, longest_silence_s=silence[0], silent=silence[1], settled_s=settled_s,
        counts={kind: ledger.counts[kind] for kind in KINDS}, faults=tuple(ledger.faults), absent=absent, left_behind=(),
    )  # fmt: skip
