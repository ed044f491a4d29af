"""Every setting of Holdfast: its name, default, range, unit, and why.

Only declares. Where a value comes from is `config.load`; the page for people, docs/configuration.md, is made by `config.docs`.
A setting is here only when the broker honours it; a range leaves out what is not built yet.

Keys are those of EMQX where it has the same setting. Where our default differs, the text says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.access import Access
from config.admin import Admin
from config.bridges import Bridge
from config.cluster import Cluster, ports_of
from config.fields import Flag, Section, Whole, conflict, setting
from config.groups import Groups
from config.listeners import Listeners
from config.loops import unmarked_loop
from config.pipeline import Pipeline
from config.protocol import Mqtt
from config.register import Register
from config.selection import Persistence, Zone
from config.storage import SHARDS_MAX, DurableStorage
from config.values import Bind, Duration, Size

GATEWAYS_MAX = 64
COMPACT_CORES_MAX = 2
"""Above it a core is left for another process, and parts that work beside each other are worth the wake-ups."""


class Gateway(Section):
    count: Literal["auto"] | Annotated[Whole, Field(ge=1, le=GATEWAYS_MAX)] = setting(
        "auto",
        "Gateway processes. All share the listener's port, and each also listens on a port of its own. One uses about one core. auto is "
        "one for every four cores, since shards and session actors want to run too, at least 1 and at most 16; with several sites it is "
        "1, so that the run of ports behind `cluster.listen` is the same on any machine. There is a session actor for each, if there are "
        "as many shards.",
        unit="processes",
        allowed='"auto" or a whole number from 1 to 64',
    )
    watchdog: Flag = setting(
        True,
        "Kill a gateway whose loop has not turned for `watchdog_after`; it is started again at once. A stuck gateway holds its "
        "clients without serving them, which is worse for them than a reconnect.",
    )
    watchdog_after: Duration = setting(
        Duration.parse("3s"),
        "How long a loop may stand still; the time in which it waits for a processor does not count. Shorter than any usual keep-alive.",
        ge=500,
        le=60_000,
    )
    connect_timeout: Duration = setting(
        Duration.parse("5s"),
        "From accepting a connection to its complete CONNECT packet; the connection is closed after that. Bounds what silent "
        "connections can hold.",
        ge=100,
        le=600_000,
        effect="at once",
    )
    packet_bytes_max: Size = setting(
        Size.parse("1MiB"),
        "Largest MQTT packet. Announced as Maximum Packet Size and enforced from the length in the header, before the body is "
        "buffered; a larger one ends the connection with 0x95.",
        ge=1024,
        le=256 * 2**20,
    )
    connect_bytes_max: Size = setting(
        Size.parse("100KB"),
        "Largest CONNECT packet. Lower than `packet_bytes_max`, which counts too, because whoever sends it is not known yet.",
        ge=512,
        le=256 * 2**20,
        effect="at once",
    )
    write_buffer_max: Size = setting(
        Size.parse("1MiB"),
        "Bytes that may wait on one connection for its client to read. Above it the gateway takes no more messages for this "
        "client, and reads nothing more from it, until half of them are gone.",
        ge=16 * 2**10,
        le=256 * 2**20,
    )
    topic_levels_max: Whole = setting(
        128,
        "Levels of a topic name or filter; more are refused. Learned topic structure keeps a node for each level it has seen.",
        unit="levels",
        ge=1,
        le=1024,
    )
    link_bytes_max: Size = setting(
        Size.parse("16MiB"),
        "Bytes on one link that may wait for their answer. At this point the sender stops reading from its clients.",
        ge=2**20,
        le=2**30,
    )

    @property
    def connect_limit(self) -> Size:
        """Bytes of a CONNECT that are taken: both limits count."""
        return min(self.connect_bytes_max, self.packet_bytes_max)

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.link_bytes_max < 2 * self.packet_bytes_max:
            least = Size(2 * self.packet_bytes_max)
            raise conflict("link_bytes_max", f"at least {least}, twice gateway.packet_bytes_max")
        return self


class DurableSessions(Section):
    enable: Flag = setting(
        True,
        "Every new session with an expiry above 0 is durable. EMQX: off. A broker that acknowledges a message and then forgets it "
        "surprises people, so here nobody has to ask for it. Off: it lives in the memory of a session actor, with a queue of "
        "`mqtt.max_mqueue_len` messages; it outlives its connection and its gateway, but not that actor. A session that is there "
        "stays what it is until it ends.",
        effect="at once",
    )
    batch_size: Whole = setting(
        512,
        "Messages that one poll of one stream returns at most; the first asks for at most 100, and others for at most half the client's "
        "window, where that is more. EMQX: 100. A session that is behind pays for the way of each poll to the shard and back, and for a "
        "turn of both: at 512 a message that waited costs little more than half of what it does at 100 (measured). Up to that many "
        "more wait in memory for room in the window.",
        unit="messages",
        ge=1,
        le=10_000,
        effect="at once",
    )
    idle_poll_interval: Duration = setting(
        Duration.parse("10s"),
        "How long a subscription that is online may get nothing from a shard before it asks that shard by itself whether there is "
        "something. Messages are pushed, so this only heals a wake-up that got lost. A session actor asks each shard at most 50 times "
        "a second in this way, so with very many silent subscriptions it takes longer; infinity: never. In EMQX it is the time-out of "
        "a poll.",
        ge=100,
        effect="at once",
    )
    renew_streams_interval: Duration = setting(
        Duration.parse("30s"),
        "How long a shard goes on with the list of streams that it matched with the filter of a subscription that is reading history, "
        "before it matches the filter with the learned topic structure anew, which also leaves out the streams of dropped generations. "
        "With a hundred thousand streams matching takes a good part of a second. Messages that are new while history is read are "
        "found in any case, when that is done. EMQX: 1 s, because it finds new streams in no other way.",
        ge=0,
        effect="at once",
    )
    heartbeat_interval: Duration = setting(
        Duration.parse("5s"),
        "How often QoS 1 acknowledgements are stored, when nothing else of the session is: the longest that they wait. After a crash of "
        "the session actor, QoS 1 messages acknowledged since then come again, marked DUP. Longer writes less. That a client is gone is "
        "noticed by its keep-alive, and that its gateway is gone after 20 s at the latest, whatever this is.",
        ge=100,
        le=600_000,
        effect="at once",
    )
    session_gc_interval: Duration = setting(
        Duration.parse("10m"),
        "How long after one sweep over the rows of all sessions the next begins. Sessions end by their timers, to the second, and their "
        "rows with them; the sweep is the safety net that looks for anything that was missed, mends it and logs `gc_found`. It "
        "should never find anything.",
        ge=1000,
        le=86_400_000,
        effect="at once",
    )
    session_gc_batch_size: Whole = setting(
        100,
        "Rows that a sweep looks at in one turn, 50 turns a second. More makes a sweep faster and delays whatever comes meanwhile by "
        "about 10 µs for each row.",
        unit="rows",
        ge=1,
        le=10_000,
        effect="at once",
    )
    message_retention_period: Duration = setting(
        Duration.parse("7d"),
        "How long a message is kept, read or not; acknowledging frees nothing. EMQX: 1 d. A week survives a long weekend, and "
        "a session lasts as long by default. Messages go by whole generations, so up to `generation_length` later.",
        ge=1000,
        effect="at once",
    )
    redelivery_limit: Whole = setting(
        0,
        "How often a message is sent again to a client that each time ends its connection without acknowledging it. At its next "
        "connection it is published to `dead_letter_topic` instead and counts as acknowledged, so that a message that its client ends with "
        "is not in the way of all behind it. What counts is the oldest message that is not acknowledged, at QoS 1 and at QoS 2 each. "
        "0: it is sent for ever.",
        unit="times",
        ge=0,
        le=1_000_000,
        effect="at once",
    )
    dead_letter_topic: str = setting(
        "dead-letters",
        "The topic of messages that were sent again more often than `redelivery_limit`. They keep payload and properties, and say in user "
        "properties where they come from: `dead-letter-topic`, `dead-letter-client`, `dead-letter-count`. They are stored whether somebody "
        "has subscribed or not.",
        pattern=r"^[^+#$\x00][^+#\x00]{0,999}$",
        allowed="a topic without +, # and $ at its beginning",
        effect="at once",
    )
    groups: Groups = setting(Groups(), "Shared subscriptions (`$share/group/filter`) of durable sessions.")
    persistence: Persistence = setting(Persistence(), "Which messages are stored for durable sessions, if one has subscribed to them.")


class RaySettings(Section):
    address: str = setting(
        "local",
        'The Ray to run in: "local" starts one for this broker alone and ends it with it; "auto" joins the one that `ray start` '
        "left on this machine; host:port joins that one. Of a Ray it joined the broker ends only its own actors.",
        pattern=r"^(local|auto|[^\s:]+:\d{1,5})$",
        allowed='"local", "auto" or "host:port"',
    )
    temp_dir: str = setting(
        "",
        "The directory that was given to `ray start --temp-dir` for the node to run on; wanted where several nodes of the cluster that is "
        "joined run on one machine. Empty: the node of this machine, and of several the head.",
        pattern=r"^(/\S*)?$",
        allowed="empty, or an absolute path without spaces",
    )
    dashboard: Flag = setting(True, "Ray's own dashboard, on 127.0.0.1. It costs about 400 MB of memory; only for a Ray that we start.")
    dashboard_port: Whole = setting(8265, "Port of Ray's dashboard; the next free one is taken when it is in use.", ge=1024, le=65535)
    object_store_bytes: Size = setting(
        Size.parse("100MiB"),
        "Shared memory that Ray reserves for objects. Messages never go that way, so this is near the least that Ray takes.",
        ge=75 * 2**20,
        le=64 * 2**30,
    )
    namespace: str = setting(
        "holdfast",
        "Ray namespace of our actors. The ids of the site and of the start are added, so brokers that share a Ray need not differ here.",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        allowed="1 to 64 letters, digits and _ . -",
    )


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info",
        "Least level that is written. debug has a line for each packet and is for one client at a time.",
        effect="at once",
    )
    format: Literal["console", "json"] = setting("console", "Lines for people, or one JSON object a line for a collector.")


class Chaos(Section):
    enabled: Flag = setting(
        False,
        "Whether `holdfast chaos` may break parts of this broker on purpose, to see that nothing acknowledged is lost. Off, it is refused, "
        "and no process looks for faults. `holdfast status` says so for as long as it is on.",
    )


# Classes of pydantic have `register` from their metaclass; what nobody calls there is a field of the instances here.
warnings.filterwarnings("ignore", 'Field name "register" in "Config" shadows', UserWarning)


class Config(Section):
    """All settings of one node."""

    data_dir: str = setting(
        "./data",
        "Directory of everything stored; made when it is not there. One broker at a time. Relative to where the command runs.",
        pattern=r"^[^\x00]{1,4096}$",
        allowed="a path",
    )
    storage_reserve: Size = setting(
        Size.parse("256MiB"),
        "The most that the file `reserve` takes, which is given back when a broker is started on a full disk. It is as large as what is "
        "stored, at least 16 MiB, and never more than a hundredth of what is free when it is made. 0: none.",
        ge=0,
        le=64 * 2**30,
    )
    storage_quota: Annotated[Size, Field(ge=2**20, le=2**50)] | Literal["auto", "unlimited"] = setting(
        "auto",
        "The most that all files of the stores may take. Above 90 % an alarm is raised and leases that do not block hold nothing; at 100 % "
        "messages that would be stored are refused with 0x97 (3.1.1: the connection is closed) until it is below 95 %. It is looked at "
        "every 5 s, so a little more is possible. auto: 80 % of what was free at the first start, as `site.json` says.",
        allowed='"auto", a size from 1MiB to 1024TiB, such as "500GiB" or a number of bytes, or "unlimited"',
        effect="at once",
    )
    profile: Literal["auto", "compact", "spread"] = setting(
        "auto",
        "How shards, session actors and gateways are spread over processes. spread: each has one. compact: all share one, which "
        "hands a message from part to part without a wake-up of another process: less latency and CPU for each message where there are "
        "few cores, and one core at most for all of them together. A crash of any of them is then one of all of them: connections are "
        "lost, and with them ephemeral sessions and those in memory; what was acknowledged is not. auto: compact on a machine with up to "
        "two cores, if there is one site and one gateway; otherwise spread.",
    )
    listeners: Listeners = setting(Listeners(), "Where clients connect.")
    access: Access = setting(Access(), "Who may come in, and who may do what (docs/access.md).")
    gateway: Gateway = setting(Gateway(), "Processes that own the connections of clients, and what one connection may use.")
    mqtt: Mqtt = setting(Mqtt(), "What the protocol leaves to the broker.")
    durable_sessions: DurableSessions = setting(DurableSessions(), "Sessions that outlive every process.")
    durable_storage: DurableStorage = setting(DurableStorage(), "Where messages are kept for them.")
    register: Register = setting(
        Register(), "Where it is recorded who leads each shard (docs/replication.md). With one site nobody asks it."
    )
    cluster: Cluster = setting(Cluster(), "How sites that share a store reach each other. With one site nobody listens there.")
    pipeline: Pipeline = setting(Pipeline(), "Stored messages in bulk, for Spark: the reader and who may use it.")
    admin: Admin = setting(Admin(), "Where the broker is looked at: metrics.")
    ray: RaySettings = setting(RaySettings(), "The engine that places and restarts our processes.")
    log: Log = setting(Log(), "What the processes write about themselves.")
    chaos: Chaos = setting(Chaos(), "Faults on purpose, for tests of a whole installation.")
    zones: dict[str, Zone] = Field(
        default={}, description="Settings of durable sessions for some listeners, users, clients or topics only, in the order of the file."
    )

    bridges: dict[str, Bridge] = Field(default={}, description="What is carried elsewhere, and where (docs/bridge.md).")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.durable_storage.messages.store_qos0 and self.durable_sessions.persistence.min_qos > 1:
            raise conflict("durable_sessions.persistence.min_qos", "1 while durable_storage.messages.store_qos0 is true")
        for name, listener in self.listeners.all():
            if not listener.packet_bytes_max.is_infinite and listener.packet_bytes_max > self.gateway.packet_bytes_max:
                limit = self.gateway.packet_bytes_max
                raise conflict(f"listeners.{name}.packet_bytes_max", f"at most {limit}, which is gateway.packet_bytes_max")
        self._check_sites()
        self._check_zones()
        self._check_bridges()
        self._check_profile()
        return self

    def _check_bridges(self) -> None:
        if loop := unmarked_loop(self.bridges):
            apart = f"a template that keeps it apart from what {loop.outwards} carries to that broker"
            wanted = f"{apart}, while one of the two speaks MQTT 3.1.1, which has no marks"
            raise conflict(f"bridges.{loop.inwards}.transform.topic", wanted)

    def _check_profile(self) -> None:
        sites = self.durable_storage.messages.n_sites
        if self.profile == "compact" and sites > 1:
            raise conflict("profile", f'"auto" or "spread" while n_sites is {sites}')
        if self.profile == "compact" and self.gateway.count not in ("auto", 1):
            raise conflict("profile", f'"auto" or "spread" while gateway.count is {self.gateway.count}')

    def _check_sites(self) -> None:
        sites = self.durable_storage.messages.n_sites
        if not self.register.stands_for(sites):
            raise conflict(
                "register.endpoints", f'the addresses of an etcd while n_sites is {sites} and register.single_point is "refused"'
            )
        if sites > 1 and not self.register.endpoints and not self.register.address:
            raise conflict(
                "register.address", f"the address of the site that has the register while n_sites is {sites} and there is no etcd"
            )
        if sites == 1:
            return
        if wanting := self.cluster.wanting():
            raise conflict(f"cluster.{wanting[0]}", f"{wanting[1]} while n_sites is {sites}")
        if self.durable_storage.messages.layout.type in ("pagestream", "record_batch"):
            raise conflict("durable_storage.messages.layout.type", f'"auto", "skipstream" or "wildcard_optimized" while n_sites is {sites}')
        if self.durable_storage.messages.backend not in ("builtin_local", "rocksdb"):
            raise conflict("durable_storage.messages.backend", f'"builtin_local" or "rocksdb" while n_sites is {sites}')
        # Of auto the most that it can be: what a store has is known when it is opened.
        shards = self.durable_storage.messages.n_shards
        gateways = 1 if self.gateway.count == "auto" else self.gateway.count
        further = ports_of(SHARDS_MAX if shards == "auto" else shards, gateways) - 1
        if isinstance(self.cluster.listen, Bind) and self.cluster.listen.port + further > 65535:
            raise conflict("cluster.listen", f"a port up to {65535 - further}, since {further} more follow it")

    def _check_zones(self) -> None:
        names = [name for name, _ in self.listeners.all()]
        for name, listener in self.listeners.all():
            if listener.zone and listener.zone not in self.zones:
                raise conflict(f"listeners.{name}.zone", f"the name of a zone, of which there are {_quoted(self.zones)}")
        for zone, selects in self.zones.items():
            if not set(selects.listeners) <= set(names):
                raise conflict(f"zones.{zone}.listeners", f"a list of names of listeners, of which there are {_quoted(names)}")
            if not (selects.selects or any(listener.zone == zone for _, listener in self.listeners.all())):
                others = "where users, client_id_prefixes and topic_prefixes are empty too, and no listener has it as its zone"
                raise conflict(f"zones.{zone}.listeners", f"at least one, {others}")

    def shard_count(self, cores: int) -> int:
        """Shards of a new store on a machine with so many cores."""
        wanted = self.durable_storage.messages.n_shards
        if wanted != "auto":
            return wanted
        sites = self.durable_storage.messages.n_sites
        return max(min(16, max(1, cores // 2)), 4 * sites if sites > 1 else 1)

    def gateway_count(self, cores: int) -> int:
        """Gateways on a machine with so many cores."""
        if self.gateway.count != "auto":
            return self.gateway.count
        alone = self.durable_storage.messages.n_sites == 1 and self.profile != "compact"
        return min(16, max(1, cores // 4)) if alone else 1

    def session_count(self, cores: int) -> int:
        """Session actors on a machine with so many cores, if there are as many shards; never more than those (actors.launcher).

        They are as dear as shards and do less: one for two shards. But one for each gateway: what several hand in and one has to hand out
        falls behind, and is read from the store instead of what is in memory."""
        return max(1, cores // 4, self.gateway_count(cores))

    def is_compact(self, cores: int) -> bool:
        """Whether shards, session actors and gateways share one process on a machine with so many cores."""
        if self.profile == "auto":
            return cores <= COMPACT_CORES_MAX and self.durable_storage.messages.n_sites == 1 and self.gateway_count(cores) == 1
        return self.profile == "compact"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join([f'"{name}"' for name in names]) or "none"
