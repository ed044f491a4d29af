"""The scenarios: who publishes what to whom, and what is measured while they do.

Every scenario verifies what its sessions received; a rate whose messages were lost is worth nothing. Sessions are durable unless
`ephemeral` asks otherwise, and are taken away again at the end, so that a run leaves the broker as it was.
CPU is taken until the line has been quiet for a moment: a broker may deliver first and work off the acknowledgements later, and that is
part of the price. (mosquitto spends a third of a drain's CPU after the last message has left.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks import meter, runs
from benchmarks.clients import Endpoint, PublisherPlan, SessionPlan
from benchmarks.enrol import dismiss, enrol
from benchmarks.outcome import Result, Topics, costs, mebibytes, publish, rate, receive, spread
from benchmarks.wire import QoS
from benchmarks.workers import Pace, Worker, start_publishers, start_subscribers

SETTLE_S: Final = 0.5
"""Between store and drain, so that the drain's rate is not that of a broker still busy with the store.

The CPU of this pause is charged to the drain: what a broker puts off until after the acknowledgement must be on somebody's bill."""

UNLIMITED: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked to do; written out with its result."""

    seconds: float = 2.5
    messages: int = 20_000
    publishers: int = 4
    window: int = 512
    payload_bytes: int = 256
    qos: QoS = 1
    topics: int = 1
    rate_per_s: float = 200.0
    sessions: int = 1000
    sessions_drained: int = 10
    own_topics: bool = False
    ephemeral: bool = False
    # Padding of one byte flatters a store that compresses; it is the default because the figures we compare with were made so.
    random_payload: bool = False
    # Of MQTT 5; with 3.1.1 there are none.
    properties: bool = False
    settle_s: float = 0.0
    """Between making the sessions and storing for them: many are written down for a while after they have left."""
    coalesce_us: int = 1000
    publisher_processes: int = 1
    subscriber_processes: int = 1
    stall_s: float = 10.0
    hard_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and on whom a run is made. `run` begins every client id and topic of it, so runs do not meet."""

    endpoint: Endpoint
    groups: meter.Groups
    data_dir: Path | None
    run: str


Scenario = Callable[[Setting, Options], list[Result]]


def fan_in(setting: Setting, options: Options) -> list[Result]:
    """All publishers to one online session."""
    return [_online("fan-in", setting, options, spread_topics(options.publishers, options.topics), [None])]


def fan_out(setting: Setting, options: Options) -> list[Result]:
    """One publisher to as many online sessions as there would be publishers."""
    return [_online("fan-out", setting, options, spread_topics(1, options.topics), [None] * options.publishers)]


def pairs(setting: Setting, options: Options) -> list[Result]:
    """Each publisher to an online session of its own."""
    own = {number: [number] for number in range(options.publishers)}
    return [_online("pairs", setting, options, own, list(range(options.publishers)))]


def latency(setting: Setting, options: Options) -> list[Result]:
    """One publisher at a fixed rate to one online session."""
    at_once = replace(options, coalesce_us=0)
    return [_online("latency", setting, at_once, spread_topics(1, options.topics), [None], rate_per_s=options.rate_per_s)]


def single(setting: Setting, options: Options) -> list[Result]:
    """One publisher with one message outstanding at a time, to one online session."""
    one_by_one = replace(options, window=1, coalesce_us=0)
    return [_online("single", setting, one_by_one, spread_topics(1, options.topics), [None])]


def ingest(setting: Setting, options: Options) -> list[Result]:
    """Publishers only, for a time, to a session that is offline; drained afterwards to verify, unmeasured."""
    return [_offline("ingest", setting, options, 1, seconds=options.seconds, messages=UNLIMITED, drain_measured=False)]


def offline(setting: Setting, options: Options) -> list[Result]:
    """A number of messages to an offline session, which then comes back and drains them."""
    return [_offline("offline", setting, options, 1, seconds=0, messages=options.messages, drain_measured=True)]


def sessions(setting: Setting, options: Options) -> list[Result]:
    """The same store for one offline session and for many, on one wildcard or (`own_topics`) each on a topic of its own."""
    # One session takes any amount at little cost, and too few messages would drown in what a broker does anyway.
    enough = max(options.messages, 20_000)
    return [
        _offline("one-session", setting, options, 1, seconds=0, messages=enough, drain_measured=False),
        _offline("sessions", setting, options, options.sessions, seconds=0, messages=options.messages, drain_measured=True),
    ]


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "ingest": ingest,
    "fan-in": fan_in,
    "fan-out": fan_out,
    "pairs": pairs,
    "offline": offline,
    "sessions": sessions,
    "latency": latency,
    "single": single,
}


def spread_topics(publishers: int, topics: int) -> Topics:
    """Each begins elsewhere, so that a run of fewer messages than topics for each publisher has all of them as well."""
    firsts = [number * topics // publishers for number in range(publishers)]
    return {number: [*range(first, topics), *range(first)] for number, first in enumerate(firsts)}


def _publishers(setting: Setting, options: Options, topics_of: Topics, messages_max: int, rate_per_s: float) -> list[PublisherPlan]:
    return [
        PublisherPlan(
            number=number,
            client_id=f"{setting.run}-p{number}",
            prefix=setting.run,
            topics=tuple(topics),
            qos=options.qos,
            payload_bytes=options.payload_bytes,
            window=options.window,
            messages_max=messages_max,
            rate_per_s=rate_per_s,
            random_payload=options.random_payload,
            properties=options.properties,
        )
        for number, topics in topics_of.items()
    ]


def _session(setting: Setting, options: Options, number: int, topic: int | None, *, durable: bool) -> SessionPlan:
    """A session on one topic, or with None on the wildcard that matches the whole run."""
    return SessionPlan(
        client_id=f"{setting.run}-s{number}",
        topic_filter=f"{setting.run}/#" if topic is None else runs.topic_name(setting.run, topic),
        qos=options.qos,
        payload_bytes=options.payload_bytes,
        wanted=None if topic is None else frozenset([topic]),
        durable=durable,
    )


def _pace(options: Options, seconds: float) -> Pace:
    return Pace(seconds, options.coalesce_us, options.stall_s, options.hard_s + seconds)


def _online(
    name: str, setting: Setting, options: Options, topics_of: Topics, filters: Sequence[int | None], *, rate_per_s: float = 0.0
) -> Result:
    """Publishers to sessions that are there."""
    if options.topics == 1:
        filters = [0 if topic is None else topic for topic in filters]  # the usual comparison is on a literal filter
    plans = [_session(setting, options, number, topic, durable=not options.ephemeral) for number, topic in enumerate(filters)]
    pace = _pace(options, options.seconds)
    workers: list[Worker] = []
    try:
        receiving = start_subscribers(setting.endpoint, plans, topics_of, pace, options.subscriber_processes, subscribe=True)
        workers += receiving
        publishers = _publishers(setting, options, topics_of, UNLIMITED, rate_per_s)
        publishing = start_publishers(setting.endpoint, publishers, pace, options.publisher_processes)
        workers += publishing
        before = meter.measure(setting.groups)
        sent = publish(publishing, pace)
        got = receive(receiving, plans, sent, topics_of, pace, setting.groups)
    finally:
        for worker in workers:
            worker.end()
    if not options.ephemeral:
        dismiss(setting.endpoint, plans)
    return Result(
        scenario=name,
        sessions=len(plans),
        window=sent.window,
        sent=sent.messages,
        acked=sent.acked,
        refused=sent.refused,
        delivered=got.messages,
        acked_per_s=rate(sent.acked, sent.began_ns, sent.ended_ns),
        delivered_per_s=rate(got.messages, sent.began_ns, got.ended_ns),
        ack_ms=spread(sent.ack_ms),
        end_to_end_ms=spread(got.end_to_end_ms),
        lost=got.lost,
        duplicated=got.duplicated,
        out_of_order=got.out_of_order,
        misrouted=got.misrouted,
        ack_disorder=sent.ack_disorder,
        marked_dup=got.marked_dup,
        cost=costs(before, got.used, sent.messages),
        pss_mib=mebibytes(got.used),
        harness_us_per_message=round((sent.cpu_s + got.cpu_s) * 1e6 / max(1, sent.messages), 2),
        stories=sent.stories + got.stories,
    )


def _offline(name: str, setting: Setting, options: Options, count: int, *, seconds: float, messages: int, drain_measured: bool) -> Result:
    """A store for `count` offline sessions; then some of them come back and are verified."""
    topics = count if options.own_topics else options.topics
    topics_of = spread_topics(options.publishers, topics)
    if options.own_topics:
        filters: list[int | None] = list(range(count))
    else:
        filters = [0 if topics == 1 and name in ("ingest", "offline") else None] * count
    plans = [_session(setting, options, number, topic, durable=True) for number, topic in enumerate(filters)]
    back = plans[:: max(1, count // options.sessions_drained)][: options.sessions_drained]
    pace = _pace(options, seconds)
    workers: list[Worker] = []
    try:
        enrol(setting.endpoint, plans)
        time.sleep(options.settle_s)
        publishers = _publishers(setting, options, topics_of, max(1, messages // options.publishers), 0.0)
        publishing = start_publishers(setting.endpoint, publishers, pace, options.publisher_processes)
        workers += publishing
        stored_before = meter.stored_bytes(setting.data_dir)
        before = meter.measure(setting.groups)
        sent = publish(publishing, pace)
        after = meter.measure(setting.groups)
        time.sleep(SETTLE_S)
        stored = meter.stored_bytes(setting.data_dir) - stored_before
        receiving = start_subscribers(setting.endpoint, back, topics_of, pace, options.subscriber_processes, subscribe=False)
        workers += receiving
        got = receive(receiving, back, sent, topics_of, pace, setting.groups)
    finally:
        for worker in workers:
            worker.end()
    dismiss(setting.endpoint, plans)
    gone = len(back) - got.resumed
    return Result(
        scenario=name,
        sessions=count,
        window=sent.window,
        sent=sent.messages,
        acked=sent.acked,
        refused=sent.refused,
        delivered=got.messages,
        acked_per_s=rate(sent.acked, sent.began_ns, sent.ended_ns),
        drained_per_s=rate(got.messages, got.began_ns, got.ended_ns) if drain_measured else None,
        ack_ms=spread(sent.ack_ms),
        lost=got.lost,
        duplicated=got.duplicated,
        out_of_order=got.out_of_order,
        misrouted=got.misrouted,
        ack_disorder=sent.ack_disorder,
        marked_dup=got.marked_dup,
        cost=costs(before, after, sent.messages),
        drain_cost=costs(after, got.used, got.messages) if drain_measured else {},
        pss_mib=mebibytes(after),
        pss_growth_mib=mebibytes(after, before),
        stored_bytes_per_message=round(stored / max(1, sent.messages), 1) if setting.data_dir else None,
        harness_us_per_message=round((sent.cpu_s + got.cpu_s) * 1e6 / max(1, sent.messages + got.messages), 2),
        stories=sent.stories + got.stories + ((f"{gone} sessions came back without session present",) if gone else ()),
    )
