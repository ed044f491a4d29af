"""What a seed makes of a world: how many parts, how slow, how big their bounds, which clients, which faults.

Each seed takes part of what there is: a world with everything at once hides one fault behind another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from gateway.options import Options as GatewayOptions
from gateway.zones import Zone
from sessions.options import SessionOptions
from shards.options import ShardOptions, StoreOptions
from shards.persistence import Persistence
from tests.sim.client import Temper
from tests.sim.world import MS, SECOND

TOPICS = [b"a/b", b"a/c", b"a/d", b"b/c", b"b/c/d", b"x", b"r/a", b"r/b"]
FILTERS = [b"a/b", b"b/c", b"x", b"a/+", b"+/c", b"#", b"a/#", b"b/#", b"+/+", b"b/+/d", b"w/+"]
GROUPS = (b"$share/g/#", b"$share/g/a/+", b"$share/h/a/+")
APART = [b"a/b", b"a/c", b"x", b"b/#", b"r/+", b"w/#"]
"""Filters that have no topic in common."""

MESSAGES_PER_BURST = 4.5
PACE_S = 30
RUN_MIN = 2
"""Of ShardOptions: there are few messages at a time here, so two are many, and one goes the way of few."""
SWEEP_EVERY_MS = (2_000, 15_000, 15_000)
"""Often, and it must never find anything: what a sweep mends is a fault of ours."""

FAULTS = {
    "kill shard": 3, "kill session": 4, "kill gateway": 3, "power shard": 3, "power all": 1, "kill all": 1, "eio": 1, "full": 1,
    "stop gateway": 2, "stop session": 1, "stop shard": 1, "zombie gateway": 1, "zombie session": 2, "shut down gateway": 1,
    "drop link": 6, "hold link": 4, "drop client": 6, "wall step": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientShape:
    """publishes, subscribes: how often it does so, in actions per second.  restless: how often it goes away.  torn: how often
    what it hears is the moment in which it turns to another connection."""

    name: str
    temper: Temper
    publishes: float
    subscribes: float
    restless: float
    torn: float
    filters: tuple[bytes, ...]
    qos: tuple[int, ...]
    ack_late: float
    ack_within_us: int
    window: int


@dataclass(frozen=True, slots=True)
class Shape:
    n_shards: int = 1
    n_sessions: int = 1
    n_gateways: int = 1
    safety_us: int = 10 * SECOND
    delays_us: tuple[int, int] = (30, 300)
    sync_us: tuple[int, int] = (100, 3000)
    restart_us: tuple[int, int] = (100 * MS, 2 * SECOND)
    fault_every_us: int = 0
    """The mean time between faults; 0: none."""
    faults: dict[str, int] = field(default_factory=dict)
    watchdog: bool = True
    """A gateway that stands still for 3 s is killed."""
    shard: ShardOptions = field(default_factory=ShardOptions)
    store: StoreOptions = field(default_factory=StoreOptions)
    session: SessionOptions = field(default_factory=SessionOptions)
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    clients: tuple[ClientShape, ...] = ()
    check_every: int = 8
    messages_max: int = 150
    named: bool = False
    """Clients say who they are, and strangers come (tests.sim.strangers)."""
    roams: bool = False
    """There are several sites: clients stay connected when their session actor is lost (gateway.moving)."""
    rivals: bool = False
    """Others take a client's id from it, and it takes it back (tests.sim.rivals)."""


def draw(rng: Random, faults: bool = True, wide: bool = True) -> Shape:
    """wide False: the smallest world: one part of each kind, QoS 1."""
    n_shards = rng.choice((1, 1, 3)) if wide else 1
    n_gateways = rng.choice((1, 2, 2)) if wide else 1
    n_sessions = rng.choice((1, 1, 2)) if wide and n_shards > 1 else 1
    kinds = dict(FAULTS)
    for kind in rng.sample(sorted(kinds), rng.randint(0, len(kinds) - 2)):
        del kinds[kind]
    if n_gateways == 1:
        kinds.pop("zombie gateway", None)
    safety_s = rng.choice((60, 120, 240)) if wide else 20
    # As much happens in a long world as in a short one: what takes long to go wrong does so while little else happens.
    pace = PACE_S / safety_s if wide else 1.0
    messages = rng.choice((30, 60, 90))
    shape = Shape(
        n_shards=n_shards,
        n_sessions=n_sessions,
        n_gateways=n_gateways,
        safety_us=safety_s * SECOND,
        delays_us=rng.choice(((20, 200), (30, 1500), (50, 20_000))),
        sync_us=rng.choice(((50, 300), (200, 4000), (1000, 40_000))),
        restart_us=rng.choice(((20 * MS, 500 * MS), (100 * MS, 3 * SECOND))),
        fault_every_us=int(rng.choice((1000, 2500, 6000)) * MS / pace) if faults else 0,
        faults=kinds if faults else {},
        watchdog=rng.random() < 0.5,
        shard=_shard(rng) if wide else ShardOptions(run_min=RUN_MIN),
        store=_store(rng) if wide else StoreOptions(),
        session=_session(rng) if wide else SessionOptions(),
        gateway=_gateway(rng) if wide else GatewayOptions(),
        clients=tuple(_clients(rng, wide, messages / safety_s, pace)),
        check_every=rng.choice((4, 32, 64, 64, 64, 128)),
        messages_max=messages,
    )
    return _remembering(rng, _selecting(rng, shape)) if wide else shape


def _remembering(rng: Random, shape: Shape) -> Shape:
    """Some worlds have sessions in memory as well, with queues that are never full, or always."""
    if rng.random() < 0.7:
        return shape
    made = [_client(rng, f"m{n}", publishes=rng.random() < 0.3, subscribes=True) for n in range(rng.randint(1, 2))]
    pace = PACE_S * SECOND / shape.safety_us
    clients = [
        replace(
            client,
            temper=replace(client.temper, expiry_s=7 * 86_400, memory=True),
            publishes=client.publishes * pace / 10,
            subscribes=client.subscribes * pace,
            restless=client.restless * pace,
        )
        for client in made
    ]
    session = replace(
        shape.session,
        queue_count_max=rng.choice((2, 1000)),
        queue_bytes_max=rng.choice((200, 8 << 20)),
        memory_bytes_max=rng.choice((500, 256 << 20)),
    )
    zone = Zone("memory", client_prefixes=(b"m",), enable=False)
    return replace(shape, clients=shape.clients + tuple(clients), session=session, gateway=replace(shape.gateway, zones=(zone,)))


def _selecting(rng: Random, shape: Shape) -> Shape:
    """What is stored: QoS 0 in some worlds, not everything in others."""
    store_qos0 = rng.random() < 0.2
    filters = (
        Persistence(min_qos=0 if store_qos0 else 2),
        Persistence(prefixes=(b"a/", b"w/", b"r/a")),
        Persistence(except_prefixes=(b"b/", b"x")),
        Persistence(rules=(((b"a/b",), True), ((b"a/",), False))),
    )
    persistence = rng.choice(filters) if rng.random() < 0.15 else None
    idle_poll_ms = rng.choice((1000, 10_000, 10_000))
    return replace(
        shape,
        shard=replace(shape.shard, store_qos0=store_qos0, persistence=persistence),
        session=replace(shape.session, store_qos0=store_qos0, idle_poll_ms=idle_poll_ms, renew_streams_ms=rng.choice((0, 30_000))),
        gateway=replace(shape.gateway, store_qos0=store_qos0, persistence=persistence),
    )


def _store(rng: Random) -> StoreOptions:
    layout = rng.choice(("pagestream", "skipstream", "record_batch"))
    return StoreOptions(layout, rng.choice(((100, 10), (0,), (3, 1), (None, 2))))


def _shard(rng: Random) -> ShardOptions:
    return ShardOptions(
        run_min=RUN_MIN,
        messages_per_record_max=rng.choice((1, 5, 1000)),
        generation_ms=rng.choice((1500, 8000, 86_400_000)),
        retention_ms=86_400_000,
        tail_bytes_max=rng.choice((200, 2000, 1 << 20)),
        gc_interval_ms=rng.choice(SWEEP_EVERY_MS),
        bundled_commits_min=rng.choice((1, 2, 32)),
        bundled_ms=rng.choice((10, 500, 60_000)),
    )


def _session(rng: Random) -> SessionOptions:
    return SessionOptions(
        batch_size=rng.choice((1, 3, 20, 100)),
        max_inflight=rng.choice((1, 4, 100)),
        heartbeat_ms=rng.choice((50, 1000, 5000)),
        lazy_commit_ms=rng.choice((1, 20, 20, 200)),
        unsent_bytes_max=rng.choice((300, 8 << 20)),
        poll_bytes_max=rng.choice((120, 1 << 20)),
        deliver_bytes_max=rng.choice((100, 1 << 20)),
        route_wait_ms=rng.choice((2000, 10_000)),
        retry_ms=rng.choice((100, 1000)),
        range_messages_max=rng.choice((4, 512)),
        range_streams_max=rng.choice((1, 64)),
        commit_sessions_max=rng.choice((1, 1000)),
        routes_per_request_max=rng.choice((1, 1000)),
        gc_interval_ms=rng.choice(SWEEP_EVERY_MS),
    )


def _gateway(rng: Random) -> GatewayOptions:
    return GatewayOptions(
        receive_maximum_in=rng.choice((5, 20, 1024)),
        max_inflight=rng.choice((2, 10, 100)),
        frame_bytes_max=rng.choice((100, 4 << 20)),
        shard_messages_max=rng.choice((6, 50_000)),
        retained_page=rng.choice((1, 100)),
        check_batch=rng.choice((1, 1000)),
    )


def _clients(rng: Random, wide: bool, messages_per_s: float, pace: float) -> list[ClientShape]:
    found = _who(rng, wide)
    publishing = sum(client.publishes for client in found)
    each = messages_per_s / MESSAGES_PER_BURST / publishing
    return [
        replace(client, publishes=client.publishes * each, subscribes=client.subscribes * pace, restless=client.restless * pace)
        for client in found
    ]


def _who(rng: Random, wide: bool) -> list[ClientShape]:
    if not wide:
        return [_client(rng, f"p{n}", publishes=True, subscribes=False, wide=False) for n in range(2)] + [
            _client(rng, f"s{n}", publishes=False, subscribes=True, wide=False) for n in range(2)
        ]
    # Few filters, so that several clients have the same ones.
    pool = rng.sample(FILTERS, rng.choice((2, 4, len(FILTERS))))
    if rng.random() < 0.5 and b"w/+" not in pool:
        pool.append(b"w/+")  # A will that nobody wants is not stored, and not seen.
    found = [_client(rng, f"p{n}", publishes=True, subscribes=False) for n in range(rng.randint(1, 3))]
    found += [_client(rng, f"s{n}", publishes=False, subscribes=True, pool=pool) for n in range(rng.randint(1, 3))]
    found += [_client(rng, f"b{n}", publishes=True, subscribes=True, pool=pool) for n in range(rng.randint(0, 1))]
    found += [_client(rng, f"e{n}", publishes=True, subscribes=True, ephemeral=True, pool=pool) for n in range(rng.randint(0, 1))]
    if rng.random() < 0.3:
        found += [_member(rng, n) for n in range(rng.randint(1, 3))]
    return found


def _member(rng: Random, n: int) -> ClientShape:
    """A member of shared groups; sessions that are durable cannot be one."""
    made = _client(rng, f"g{n}", publishes=rng.random() < 0.3, subscribes=True, ephemeral=True)
    return replace(made, temper=replace(made.temper, version=5), filters=GROUPS)


def _client(
    rng: Random, name: str, publishes: bool, subscribes: bool, ephemeral: bool = False, wide: bool = True, pool: list[bytes] = FILTERS
) -> ClientShape:
    version = rng.choice((4, 5, 5)) if wide else 4
    expiry_s = 0 if ephemeral or (publishes and not subscribes and rng.random() < 0.3) else 7 * 86_400
    if expiry_s and version == 5 and rng.random() < 0.25:
        expiry_s = rng.choice((2, 5, 15))
    # Who cannot tell by an identifier which subscription brought a message has filters that do not overlap, mostly.
    filters = pool if version == 5 or rng.random() < 0.2 else APART
    temper = Temper(
        version=version,
        expiry_s=expiry_s,
        keep_alive_s=rng.choice((0, 8, 20)),
        receive_max=rng.choice((1, 2, 5, 20, 100)) if wide else 100,
        will_qos=rng.choice((-1, 1, 2)) if wide else -1,
        will_delay_s=rng.choice((0, 0, 2, 6)) if version == 5 else 0,
        cut=rng.choice((0.0, 0.1, 0.6)),
        slow_to_hear_us=rng.choice((5, 300, 2000)) * MS,
    )
    return ClientShape(
        name=name,
        temper=temper,
        publishes=rng.choice((0.3, 1.0)) if publishes else 0.0,
        subscribes=rng.choice((0.03, 0.2)) if subscribes and wide else 0.0,
        restless=rng.choice((0.01, 0.1, 0.3)) if wide else 0.05,
        torn=rng.choice((0.0, 0.02, 0.1)) if wide else 0.0,
        filters=tuple(rng.sample(filters, min(len(filters), rng.randint(1, 3)))) if subscribes else (),
        qos=rng.choice(((1,), (2,), (1, 2), (0, 1, 2))) if wide else (1,),
        ack_late=rng.choice((0.0, 0.3, 0.9)) if wide else 0.0,
        ack_within_us=rng.choice((2, 200, 2000)) * MS,
        window=rng.choice((1, 5, 20)),
    )
