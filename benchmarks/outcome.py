"""What a run found: the parts its workers report, put together, and the result that is written down.

Decides how each figure is computed and nothing else. A rate of publishing runs from the first send to the last acknowledgement, a rate of
delivery from the first send to the last delivery, a rate of draining from before the CONNECT to the last delivery. What is due at a
session is what was acknowledged on its topics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks import ledger, meter
from benchmarks.clients import SessionPlan
from benchmarks.ledger import Bits
from benchmarks.workers import Expect, Go, Pace, Published, Received, Worker

Topics = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in milliseconds."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one group of processes spent on each message of a phase."""

    cpu_us: float
    written_bytes: float


@dataclass(frozen=True, slots=True)
class Result:
    """One run. A rate is in messages per second; what a scenario does not measure is None."""

    scenario: str
    sessions: int
    window: int
    sent: int
    acked: int
    refused: int
    delivered: int
    acked_per_s: float | None = None
    delivered_per_s: float | None = None
    drained_per_s: float | None = None
    ack_ms: Spread | None = None
    end_to_end_ms: Spread | None = None
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    misrouted: int = 0
    ack_disorder: int = 0
    marked_dup: int = 0
    cost: Mapping[str, Cost] = field(default_factory=dict)
    drain_cost: Mapping[str, Cost] = field(default_factory=dict)
    pss_mib: Mapping[str, float] = field(default_factory=dict)
    pss_growth_mib: Mapping[str, float] = field(default_factory=dict)
    stored_bytes_per_message: float | None = None
    harness_us_per_message: float = 0.0
    stories: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing lost, repeated, disordered or refused, and nobody had a story to tell."""
        return not (self.lost or self.duplicated or self.out_of_order or self.misrouted or self.refused or self.stories)


@dataclass(frozen=True, slots=True)
class Sent:
    """The publishers of all processes together."""

    began_ns: int
    ended_ns: int
    cpu_s: float
    messages: int
    acked: int
    refused: int
    ack_disorder: int
    window: int
    acknowledged: Mapping[int, Bits]
    ack_ms: NDArray[np.float32]
    stories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Got:
    """The sessions of all processes together, and what the broker had used when the line had been quiet."""

    began_ns: int
    ended_ns: int
    cpu_s: float
    messages: int
    lost: int
    duplicated: int
    out_of_order: int
    misrouted: int
    marked_dup: int
    resumed: int
    end_to_end_ms: NDArray[np.float32]
    used: Mapping[str, meter.Used]
    stories: tuple[str, ...]


def publish(workers: Sequence[Worker], pace: Pace) -> Sent:
    """Lets the publishers go and waits until they have ended."""
    for worker in workers:
        worker.pipe.send(Go())
    parts = [worker.wait(Published, pace.hard_s) for worker in workers]
    acknowledged = {number: bits for part in parts for number, bits in part.acknowledged.items()}
    return Sent(
        began_ns=min(part.began_ns for part in parts),
        ended_ns=max(part.ended_ns for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
        messages=sum(part.sent for part in parts),
        acked=sum(int(np.unpackbits(bits).sum()) for bits in acknowledged.values()),
        refused=sum(part.refused for part in parts),
        ack_disorder=sum(part.ack_disorder for part in parts),
        window=parts[0].window,
        acknowledged=acknowledged,
        ack_ms=np.concatenate([part.ack_ms for part in parts]),
        stories=tuple(sorted({story for part in parts for story in part.stories})),
    )


def receive(
    workers: Sequence[Worker], plans: Sequence[SessionPlan], sent: Sent, topics_of: Topics, pace: Pace, groups: meter.Groups
) -> Got:
    """Tells the subscribers what is due and waits until they have it or have given up."""
    shares = [list(plans[part :: len(workers)]) for part in range(len(workers))]
    for worker, share in zip(workers, shares, strict=True):
        # One whose connections have all ended has told its story, and is gone.
        with contextlib.suppress(BrokenPipeError):
            worker.pipe.send(Expect(tuple(ledger.due(sent.acknowledged, topics_of, plan.wanted) for plan in share)))
    parts = [worker.wait(Received, pace.hard_s) for worker in workers]
    used = meter.measure(groups)
    seen = [(plan, one) for part, share in zip(parts, shares, strict=True) for plan, one in zip(share, part.sessions, strict=True)]
    return Got(
        began_ns=min(part.began_ns for part in parts),
        ended_ns=max(part.ended_ns for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
        messages=sum(one.messages for _, one in seen),
        lost=sum(ledger.lost(sent.acknowledged, one, topics_of, plan.wanted) for plan, one in seen),
        duplicated=sum(one.duplicated for _, one in seen),
        out_of_order=sum(one.out_of_order for _, one in seen),
        misrouted=sum(one.misrouted for _, one in seen),
        marked_dup=sum(part.marked_dup for part in parts),
        resumed=sum(part.resumed for part in parts),
        end_to_end_ms=np.concatenate([part.end_to_end_ms for part in parts]),
        used=used,
        stories=tuple(sorted({story for part in parts for story in part.stories})),
    )


def rate(messages: int, began_ns: int, ended_ns: int) -> float | None:
    """Messages per second; None when nothing happened."""
    return round(messages * 1e9 / (ended_ns - began_ns), 1) if messages and ended_ns > began_ns else None


def spread(values_ms: NDArray[np.float32]) -> Spread | None:
    """The distribution of these times; None without any."""
    if not len(values_ms):
        return None
    p50, p99 = np.percentile(values_ms, [50, 99]).tolist()
    return Spread(round(p50, 3), round(p99, 3), round(float(values_ms.max()), 3))


def costs(before: Mapping[str, meter.Used], after: Mapping[str, meter.Used], messages: int) -> dict[str, Cost]:
    """What each group spent per message between two measurements."""
    count = max(1, messages)
    return {
        group: Cost(
            cpu_us=round((used.cpu_s - before[group].cpu_s) * 1e6 / count, 2),
            written_bytes=round((used.written_bytes - before[group].written_bytes) / count, 1),
        )
        for group, used in after.items()
    }


def mebibytes(used: Mapping[str, meter.Used], before: Mapping[str, meter.Used] | None = None) -> dict[str, float]:
    """The memory of each group, or what it grew by."""
    return {group: round((now.pss_bytes - (before[group].pss_bytes if before else 0)) / 2**20, 1) for group, now in used.items()}
