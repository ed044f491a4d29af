"""Settings of the store of messages: where it lies, how it is cut into shards and generations, how messages become records and keys.

Only declares, as `config.schema` does, of which this is the section `durable_storage`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.fields import Flag, Section, Whole, conflict, setting
from config.retention import CLASSES_ALLOWED, FILTERS_ALLOWED, RetentionClass, check_classes, check_filters
from config.values import Duration, Size

SHARDS_MAX = 64
SITES_MAX = 7
"""As many copies as a shard may have (shards.replication)."""
COPIES_AUTO = 3
"""With fewer, losing a site loses messages or stops them."""
THRESHOLDS_ALLOWED = "a list of 1 to 16 whole numbers from 1 to 1000000, such as [100, 10]"


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
    flush_interval: Duration = setting(
        Duration(0),
        "The longest that what is written waits for its sync, so that one sync serves more: the next one begins so long after the last "
        "one began, or when `max_items` messages wait. After a pause nothing waits. 0: it begins as soon as the last has ended. EMQX: 100 "
        "ms. Longer spares a disk that wears or is slow, and under load delays acknowledgements by so much, and what sessions get.",
        ge=0,
        le=1000,
        effect="at once",
    )


class Layout(Section):
    type: Literal["auto", "pagestream", "skipstream", "wildcard_optimized_v2", "record_batch", "wildcard_optimized"] = setting(
        "auto",
        "How messages lie in the store. auto: pagestream, or with several sites skipstream. pagestream: in order of their position, with "
        "an index over the varying levels of the topic that is written later, in pages. skipstream: with an index key for each of them "
        "instead; wildcard_optimized_v2 is EMQX's word for it. record_batch: many messages of a topic in one value, and such pages. "
        "wildcard_optimized: in order of epochs, and in an epoch in order of the varying levels; sessions that are behind what "
        "`tail_cache_bytes` holds get what is new when its epoch is over. docs/layouts.md says what each costs. A change applies to "
        "generations made from then on. With several sites neither pagestream nor record_batch: their index is of one site.",
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
    n_shards: Literal["auto"] | Annotated[Whole, Field(ge=1, le=SHARDS_MAX)] = setting(
        "auto",
        "Parts of the store, each with its own log and its own process. One shard is about one core of storage. EMQX: 16. auto is "
        "half the cores, at least 1 and at most 16: a process of its own for each shard is too dear for more. With several sites at least "
        "4 for each of them, so that each leads some; there the first site counts, and the others take what the register says.",
        unit="shards",
        allowed='"auto" or a whole number from 1 to 64',
        effect="never, fixed",
    )
    n_sites: Whole = setting(
        1,
        "Sites that share the store, each a whole broker with a data directory of its own (docs/sites.md). Each says the same number, and "
        "shards get their copies when so many are there. More than one needs `cluster` and `register`.",
        unit="sites",
        ge=1,
        le=SITES_MAX,
        effect="never, fixed",
    )
    replication_factor: Literal["auto"] | Annotated[Whole, Field(ge=1, le=SITES_MAX)] = setting(
        "auto",
        "Copies of each message, each on another site, so at most `n_sites`. More than half of them have to be there for anything to be "
        "stored: of 3 one site may be lost, of 5 two; with 2 both are needed. auto is 3, or `n_sites` where there are fewer. EMQX: 3.",
        unit="copies",
        allowed='"auto" or a whole number from 1 to 7',
        effect="never, fixed",
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
        "Memory of one shard for pieces of the store that were read. What is not in it is read from the file, 10 to 20 µs for 8 KiB when "
        "the system has the file in memory. More helps where many sessions read far back at a time; without any such sessions little "
        "is enough.",
        ge=2**20,
        le=64 * 2**30,
    )
    local_write_buffer: LocalWriteBuffer = setting(LocalWriteBuffer(), "How publishes become records.")
    layout: Layout = setting(Layout(), "How messages are laid out.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.copies > self.n_sites:
            raise conflict("replication_factor", f"at most {self.n_sites}, which is n_sites")
        check_classes("classes", self.classes)
        check_filters("capture", self.capture)
        return self

    @property
    def layout_type(self) -> str:
        """Of new generations; auto is what it stands for."""
        if self.layout.type != "auto":
            return self.layout.type
        return "pagestream" if self.n_sites == 1 else "skipstream"

    @property
    def copies(self) -> int:
        """How many of each message there are to be."""
        return min(COPIES_AUTO, self.n_sites) if self.replication_factor == "auto" else self.replication_factor


class DurableStorage(Section):
    messages: Messages = setting(Messages(), "The store of messages.")
