"""The processes of a run: one or a few that publish, one or a few that subscribe, each a loop over its clients.

Publishers and subscribers are apart so that neither waits for the other's Python. The parent speaks with a worker by a pipe, with the
messages below and no others; a worker that breaks tells its story by the pipe, and one that dies without a word shows as the pipe's end.

`coalesce_us`: how long input may pile up before each round of reads. With 0 the generator wakes for every packet, which costs more on a
machine shared with the broker than it finds out; latency and single-message runs use 0, because there the wait would be measured.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.clients import Arena, Endpoint, Publisher, PublisherPlan, SessionPlan, Subscriber, spread_of
from benchmarks.ledger import Bits, Seen
from benchmarks.readiness import Readiness
from benchmarks.wire import Refused

QUIET_S: Final = 0.3
"""How long a subscriber that has everything listens on, to catch duplicates."""

_FORK = multiprocessing.get_context("fork")


class RunFailed(Exception):
    """The run has no result; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of one run."""

    seconds: float  # of publishing; 0: until every message is out
    coalesce_us: int
    stall_s: float  # without progress for so long a side gives up
    hard_s: float  # no phase may take longer


@dataclass(frozen=True, slots=True)
class Ready:
    """Worker to parent: connected (and subscribed)."""


@dataclass(frozen=True, slots=True)
class Go:
    """Parent to publishers: start now."""


@dataclass(frozen=True, slots=True)
class Expect:
    """Parent to subscribers: so many distinct messages are due at each session, in the order of its plans."""

    messages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """Worker to parent: no result."""

    story: str


@dataclass(frozen=True, slots=True)
class Published:
    """What the publishers of one process did."""

    began_ns: int
    ended_ns: int
    cpu_s: float
    sent: int
    window: int
    refused: int
    ack_disorder: int
    acknowledged: Mapping[int, Bits]
    ack_ms: NDArray[np.float32]
    stories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """What the sessions of one process got, in the order of their plans."""

    began_ns: int
    ended_ns: int
    cpu_s: float
    sessions: tuple[Seen, ...]
    resumed: int
    marked_dup: int
    end_to_end_ms: NDArray[np.float32]
    stories: tuple[str, ...]


Answer = TypeVar("Answer", Ready, Published, Received)


def cpu_s() -> float:
    """CPU this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Worker:
    """The parent's end of one process."""

    def __init__(self, target: object, *arguments: object) -> None:
        self.pipe, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=target, args=(theirs, *arguments), daemon=True)  # type: ignore[arg-type]
        self._process.start()
        theirs.close()

    def wait(self, kind: type[Answer], timeout_s: float) -> Answer:
        """The worker's next message, which must be of this kind."""
        if not self.pipe.poll(timeout_s):
            raise RunFailed(f"a {self._process.name} gave no {kind.__name__} within {timeout_s:.0f} s")
        try:
            message = self.pipe.recv()
        except EOFError:
            raise RunFailed(f"a {self._process.name} ended without a word") from None
        if isinstance(message, Broken):
            raise RunFailed(message.story)
        if not isinstance(message, kind):
            raise RunFailed(f"a {self._process.name} said {type(message).__name__} where {kind.__name__} was due")
        return message

    def end(self) -> None:
        """Waits for the process, and ends it when it will not."""
        self._process.join(2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()


def start_publishers(endpoint: Endpoint, plans: Sequence[PublisherPlan], pace: Pace, processes: int) -> list[Worker]:
    """Connected publishers that wait for `Go`."""
    count = max(1, min(processes, len(plans)))
    workers = [Worker(_publish, endpoint, list(plans[part::count]), pace) for part in range(count)]
    for worker in workers:
        worker.wait(Ready, pace.hard_s)
    return workers


def start_subscribers(
    endpoint: Endpoint, plans: Sequence[SessionPlan], topics_of: Mapping[int, Sequence[int]], pace: Pace, processes: int, *, subscribe: bool
) -> list[Worker]:
    """Connected subscribers; they read from the first moment and wait for `Expect` to know when they are done."""
    count = max(1, min(processes, len(plans)))
    workers = [Worker(_receive, endpoint, list(plans[part::count]), dict(topics_of), pace, subscribe) for part in range(count)]
    for worker in workers:
        worker.wait(Ready, pace.hard_s)
    return workers


def _publish(pipe: Pipe, endpoint: Endpoint, plans: list[PublisherPlan], pace: Pace) -> None:
    try:
        arena = Arena(0)
        publishers = [Publisher(endpoint, arena, plan) for plan in plans]
        pipe.send(Ready())
        pipe.recv()  # Go
        pipe.send(_publish_all(pipe, publishers, pace))
        for publisher in publishers:
            publisher.connection.leave()
    except (OSError, Refused) as error:
        pipe.send(Broken(f"publishers: {error}"))
    except EOFError:
        pass  # the parent is gone


def _publish_all(pipe: Pipe, publishers: list[Publisher], pace: Pace) -> Published:
    poll = Readiness(publishers, pipe.fileno())
    cpu_before, began_ns = cpu_s(), time.monotonic_ns()
    until_ns = began_ns + int(pace.seconds * 1e9) if pace.seconds else None
    progress, progress_ns = -1, began_ns
    shortest_gap_s = min((1 / p.plan.rate_per_s for p in publishers if p.plan.rate_per_s), default=0.05)
    while True:
        now_ns = time.monotonic_ns()
        offering = until_ns is None or now_ns < until_ns
        for publisher in publishers:
            if offering:
                publisher.pump(now_ns, began_ns)
            else:
                publisher.connection.flush()
        answered = sum(p.answered if p.plan.qos else p.sent for p in publishers)
        if answered != progress:
            progress, progress_ns = answered, time.monotonic_ns()
        live = [p for p in publishers if p.connection.open]
        if all((p.finished or not offering) and not p.unanswered and not p.connection.pending for p in live):
            break
        if now_ns - progress_ns > pace.stall_s * 1e9:
            for publisher in live:
                publisher.connection.fail(f"no acknowledgement for {pace.stall_s:.0f} s with {publisher.unanswered} outstanding")
            break
        blocked = poll.watch_room()
        if pace.coalesce_us and not blocked:
            time.sleep(pace.coalesce_us / 1e6)
        for publisher in poll.readable(min(0.05, shortest_gap_s / 2)):
            publisher.read()
    cpu_after = cpu_s()
    acknowledged = {p.plan.number: p.acknowledged() for p in publishers}
    stories = {p.connection.story for p in publishers if p.connection.story}
    return Published(
        began_ns=began_ns,
        ended_ns=progress_ns,
        cpu_s=cpu_after - cpu_before,
        sent=sum(p.sent for p in publishers),
        window=publishers[0].window,
        refused=sum(p.refused for p in publishers),
        ack_disorder=sum(p.ack_disorder for p in publishers),
        acknowledged=acknowledged,
        ack_ms=spread_of([part for p in publishers for part in p.latencies_ns]),
        stories=tuple(sorted(stories)),
    )


def _receive(
    pipe: Pipe, endpoint: Endpoint, plans: list[SessionPlan], topics_of: dict[int, Sequence[int]], pace: Pace, subscribe: bool
) -> None:
    try:
        began_ns = time.monotonic_ns()
        arena = Arena(plans[0].payload_bytes)
        subscribers = [Subscriber(endpoint, arena, plan, subscribe=subscribe) for plan in plans]
        report = _receive_all(pipe, subscribers, topics_of, pace, began_ns)
        pipe.send(report)
        for subscriber in subscribers:
            subscriber.connection.leave()
    except (OSError, Refused) as error:
        pipe.send(Broken(f"subscribers: {error}"))
    except EOFError:
        pass  # the parent is gone


def _receive_all(pipe: Pipe, subscribers: list[Subscriber], topics_of: Mapping[int, Sequence[int]], pace: Pace, began_ns: int) -> Received:
    for subscriber in subscribers:
        subscriber.read(kept_only=True)
    poll = Readiness(subscribers, pipe.fileno())
    cpu_before = cpu_s()
    due: tuple[int, ...] | None = None
    told_ready = False
    got, input_ns, told_ns = 0, began_ns, began_ns
    while True:
        if pace.coalesce_us:
            time.sleep(pace.coalesce_us / 1e6)
        poll.watch_room()
        for subscriber in poll.readable(0.02):
            subscriber.read()
        now_ns = time.monotonic_ns()
        for subscriber in subscribers:
            subscriber.connection.flush()
        if not told_ready and all(s.ready or not s.connection.open for s in subscribers):
            told_ready = True
            pipe.send(Ready())
        messages = sum(s.ledger.messages for s in subscribers)
        if messages != got:
            got, input_ns = messages, now_ns
        if due is None and poll.parent_spoke:
            due, told_ns = pipe.recv().messages, now_ns
        if not any(s.connection.open for s in subscribers):
            break
        if due is None:
            continue
        quiet_s = (now_ns - max(input_ns, told_ns)) / 1e9
        if all(s.ledger.messages >= n or not s.connection.open for s, n in zip(subscribers, due, strict=True)):
            if quiet_s > QUIET_S:
                break
        elif quiet_s > pace.stall_s:
            break
    if not told_ready:
        raise Refused(f"no SUBACK: {subscribers[0].connection.story}")
    stories = {s.connection.story for s in subscribers if s.connection.story}
    return Received(
        began_ns=began_ns,
        ended_ns=input_ns,
        cpu_s=cpu_s() - cpu_before,
        sessions=tuple(s.ledger.close(topics_of) for s in subscribers),
        resumed=sum(s.connection.accepted.session_present for s in subscribers),
        marked_dup=sum(s.marked_dup for s in subscribers),
        end_to_end_ms=spread_of([s.ledger.end_to_end_ns() for s in subscribers]),
        stories=tuple(sorted(stories)),
    )
