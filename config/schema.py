"""Every setting of Holdfast: its name, default, range, unit, and why.

Only declares. Where a value comes from is `config.load`; the page for people, docs/configuration.md, is made by `config.docs`.
A setting is here only when the broker honours it; a range leaves out what is not built yet.

Keys are those of EMQX where it has the same setting. Where our default differs, the text says why.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.access import Access
from config.admin import Admin
from config.fields import Flag, Section, Whole, conflict, setting
from config.listeners import Listeners
from config.pipeline import Pipeline
from config.protocol import Mqtt
from config.retention import CLASSES_ALLOWED, FILTERS_ALLOWED, RetentionClass, check_classes, check_filters
from config.selection import Persistence, Zone
from config.values import Duration, Size

THRESHOLDS_ALLOWED = "a list of 1 to 16 whole numbers from 1 to 1000000, such as [100, 10]"


class Gateway(Section):
    count: Whole = setting(
        1,
        "Gateway processes. All share the listener's port, and each also listens on a port of its own. One uses about one core; "
        "two cores are best served by one gateway, since a shard and a session actor want to run too.",
        unit="processes",
        ge=1,
        le=64,
    )
    watchdog: Flag = setting(
        True,
        "Kill a gateway whose loop has not turned for `watchdog_after`; it is started again at once. A stuck gateway holds its "
        "clients without serving them, which is worse for them than a reconnect.",
    )
    watchdog_after: Duration = setting(
        Duration.parse("3s"),
        "How long a loop may stand still. Shorter than any usual keep-alive, longer than any pause a busy machine causes.",
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
        100, "Messages that one poll of one stream returns at most.", unit="messages", ge=1, le=10_000, effect="at once"
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
    persistence: Persistence = setting(Persistence(), "Which messages are stored for durable sessions, if one has subscribed to them.")


class LocalWriteBuffer(Section):
    max_items: Whole = setting(
        1000,
        "Messages in one record, the unit of commit. Records are as small as the load allows: the next begins when the sync of "
        "the last has ended.",
        unit="messages",
        ge=1,
        le=100_000,
        effect="at once",
    )


class Layout(Section):
    type: Literal["skipstream", "wildcard_optimized_v2", "record_batch", "wildcard_optimized"] = setting(
        "skipstream",
        "How messages lie in the store. skipstream: in order of their position, with an index key for each varying level of the topic; "
        "the second name is EMQX's word for the same. record_batch: many messages of a topic in one value, and an index that is "
        "written later, in pages. wildcard_optimized: in order of epochs, and in an epoch in order of the varying levels; sessions that "
        "are behind what `tail_cache_bytes` holds get what is new when its epoch is over. docs/layouts.md says what each costs. A "
        "change applies to generations made from then on.",
        effect="with the next generation",
    )
    wildcard_thresholds: tuple[Whole, ...] = setting(
        (100, 10),
        "How many different words at a level of the topic tree make it a varying level: the first number for the first level, the "
        "second for the second, the last for all below. Lower makes fewer, larger streams.",
        unit="words",
        allowed=THRESHOLDS_ALLOWED,
        effect="with the next generation",
    )
    bits_per_topic_level: Whole = setting(
        64,
        "Only wildcard_optimized: bits of a key for each varying level. Fewer make smaller keys, and more messages that are looked at in "
        "vain because other words have the same bits. EMQX: 64.",
        unit="bits",
        ge=16,
        le=64,
        allowed="a multiple of 8 from 16 to 64",
        effect="with the next generation",
    )
    epoch_bits: Whole = setting(
        20,
        "Only wildcard_optimized: an epoch has 2 to the power of this many microseconds; 10 is about 1 ms, 17 about 0.1 s, 20 about 1 s, "
        "24 about 17 s. Shorter epochs delay less and cost more, as each is searched by itself. 64 is a single epoch: nothing is "
        "delayed, and reading behind the head is dear. EMQX: 20.",
        unit="bits",
        ge=1,
        le=64,
        effect="with the next generation",
    )
    topic_index_bytes: Whole = setting(
        4,
        "Only wildcard_optimized: bytes of a key that name the stream. Fewer make smaller keys, and streams that lie among each other: "
        "with 4, two or three of 100,000 streams do. EMQX: 4.",
        unit="bytes",
        ge=4,
        le=8,
        effect="with the next generation",
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        thresholds = self.wildcard_thresholds
        if not (1 <= len(thresholds) <= 16 and all(1 <= n <= 1_000_000 for n in thresholds)):
            raise conflict("wildcard_thresholds", THRESHOLDS_ALLOWED)
        if self.bits_per_topic_level % 8:
            raise conflict("bits_per_topic_level", "a multiple of 8 from 16 to 64")
        return self


class Messages(Section):
    data_dir: str = setting(
        "", "Where the messages lie, when not below `data_dir`. Needs a local file system that keeps its promise at fsync."
    )
    backend: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = setting(
        "builtin_local",
        "The engine under the store. builtin_local and rocksdb: RocksDB, one copy on this node. memory: nothing is on disk and a restart "
        "of a shard loses its messages; for trying things out. Any other: what an installed package offers (storage-library.md).",
        allowed='"builtin_local", "rocksdb", "memory" or the name of an installed backend',
    )
    n_shards: Literal["auto"] | Annotated[Whole, Field(ge=1, le=64)] = setting(
        "auto",
        "Parts of the store, each with its own log and its own process. One shard is about one core of storage. EMQX: 16. auto is "
        "half the cores, at least 1 and at most 16: a process of its own for each shard is too dear for more.",
        unit="shards",
        allowed='"auto" or a whole number from 1 to 64',
        effect="never, fixed",
    )
    n_sites: Whole = setting(
        1,
        "Sites that share the store. More than one needs replication, which is not built yet.",
        unit="sites",
        ge=1,
        le=1,
        effect="never, fixed",
    )
    replication_factor: Whole = setting(
        1, "Copies of each message. EMQX: 3. More than one needs replication, which is not built yet.", unit="copies", ge=1, le=1
    )
    on_damage: Literal["salvage", "strict"] = setting(
        "salvage",
        'What to do about broken files of the store (operations.md, "When files are broken"). salvage: put generations aside that '
        "cannot be read, serve the rest and say so. strict: do not start, and end the shard when it meets damage.",
    )
    store_qos0: Flag = setting(
        False,
        "Store QoS 0 messages for durable sessions too. Off: whoever publishes at QoS 0 has said that a loss is fine, and live "
        "sessions get them without the cost of a commit.",
    )
    generation_length: Duration = setting(
        Duration.parse("1d"),
        "How long one generation takes messages. Retention drops whole generations, so shorter is more exact and makes more "
        "column families, each of which costs memory and time at start. Never longer than the period of its class.",
        ge=1000,
        le=30 * 86_400_000,
        effect="at once",
    )
    generation_size: Annotated[Size, Field(ge=2**20, le=2**50)] | Literal["unlimited"] = setting(
        Size.parse("8GiB"),
        "With so many bytes of messages a generation is sealed before `generation_length`, so that a busy day goes in pieces of a size "
        "that can be handled. What is counted is what was published, not what it takes on disk; after a start, what the store estimates. "
        "Size begins no more generations once a shard has 200 of them: from there on only time does.",
        allowed='a size from 1MiB to 1024TiB, such as "8GiB" or a number of bytes, or "unlimited"',
        effect="at once",
    )
    classes: tuple[RetentionClass, ...] = setting(
        (),
        "Topics that are kept for another time than `message_retention_period`: a topic is in the first class whose filter matches it. "
        "Each class has generations of its own, so one that is kept for a year does not hold the others. A change of names or filters "
        "begins new generations for all; those of a class that is gone are kept for the period that it had. docs/retention.md has more.",
        unit="classes",
        allowed=CLASSES_ALLOWED,
        effect="at once",
    )
    capture: tuple[str, ...] = setting(
        (),
        "Messages of topics that match one of these filters are stored though no durable session wants them: for readers that come later. "
        "What `durable_sessions.persistence` excludes is excluded here too.",
        unit="filters",
        allowed=FILTERS_ALLOWED,
        effect="at once",
    )
    hold_unread: Flag = setting(
        False,
        "Keep a generation whose time is over until every session has acknowledged all that it has of it. Off: its time decides, and a "
        "session that comes too late is told what it lost. On: a session that never expires and whose client never comes back keeps "
        "everything from then on, until `storage_quota` ends it by refusing publishers; `holdfast storage retention --dry-run` names it.",
        effect="at once",
    )
    tail_cache_bytes: Size = setting(
        Size.parse("64MiB"),
        "Memory of one shard for the newest messages. Sessions that keep up are served from it without touching the disk.",
        ge=2**20,
        le=64 * 2**30,
        effect="at once",
    )
    block_cache: Size = setting(
        Size.parse("64MiB"),
        "Memory of one shard for pieces of the store that were read. What is not in it is read from the file, 10 to 20 µs for 4 KiB when "
        "the system has the file in memory. More helps where many sessions read far back at a time; without any such sessions little "
        "is enough.",
        ge=2**20,
        le=64 * 2**30,
    )
    local_write_buffer: LocalWriteBuffer = setting(LocalWriteBuffer(), "How publishes become records.")
    layout: Layout = setting(Layout(), "How messages are laid out.")

    @model_validator(mode="after")
    def _filters(self) -> Self:
        check_classes("classes", self.classes)
        check_filters("capture", self.capture)
        return self


class DurableStorage(Section):
    messages: Messages = setting(Messages(), "The store of messages.")


class RaySettings(Section):
    address: str = setting(
        "local",
        'The Ray to run in: "local" starts one for this broker alone and ends it with it; "auto" joins the one that `ray start` '
        "left on this machine; host:port joins that one. Of a Ray it joined the broker ends only its own actors.",
        pattern=r"^(local|auto|[^\s:]+:\d{1,5})$",
        allowed='"local", "auto" or "host:port"',
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
        "Ray namespace of our actors. Two brokers that join one Ray need two.",
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
    listeners: Listeners = setting(Listeners(), "Where clients connect.")
    access: Access = setting(Access(), "Who may come in, and who may do what (docs/access.md).")
    gateway: Gateway = setting(Gateway(), "Processes that own the connections of clients, and what one connection may use.")
    mqtt: Mqtt = setting(Mqtt(), "What the protocol leaves to the broker.")
    durable_sessions: DurableSessions = setting(DurableSessions(), "Sessions that outlive every process.")
    durable_storage: DurableStorage = setting(DurableStorage(), "Where messages are kept for them.")
    pipeline: Pipeline = setting(Pipeline(), "Stored messages in bulk, for Spark: the reader and who may use it.")
    admin: Admin = setting(Admin(), "Where the broker is looked at: metrics.")
    ray: RaySettings = setting(RaySettings(), "The engine that places and restarts our processes.")
    log: Log = setting(Log(), "What the processes write about themselves.")
    zones: dict[str, Zone] = Field(
        default={}, description="Settings of durable sessions for some listeners, users, clients or topics only, in the order of the file."
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.durable_storage.messages.store_qos0 and self.durable_sessions.persistence.min_qos > 1:
            raise conflict("durable_sessions.persistence.min_qos", "1 while durable_storage.messages.store_qos0 is true")
        for name, listener in self.listeners.all():
            if not listener.packet_bytes_max.is_infinite and listener.packet_bytes_max > self.gateway.packet_bytes_max:
                limit = self.gateway.packet_bytes_max
                raise conflict(f"listeners.{name}.packet_bytes_max", f"at most {limit}, which is gateway.packet_bytes_max")
        names = [name for name, _ in self.listeners.all()]
        for zone, selects in self.zones.items():
            if not set(selects.listeners) <= set(names):
                known = ", ".join(f'"{name}"' for name in names)
                raise conflict(f"zones.{zone}.listeners", f"a list of names of listeners, of which there are {known}")
        return self

    def shard_count(self, cores: int) -> int:
        """Shards of a new store on a machine with so many cores."""
        wanted = self.durable_storage.messages.n_shards
        return min(16, max(1, cores // 2)) if wanted == "auto" else wanted
