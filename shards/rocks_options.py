"""How RocksDB is set up for a store: sizes, when it flushes, and how it merges. Says nothing of keys, and opens nothing.

Family 0 and indexes have rows that are written over and over: they are merged in levels, which keeps what is out of date small. A
generation only grows and goes as a whole: it has at most MERGED_RUNS sorted runs of files, and those of about the same size are merged when
there would be more (RocksDB's universal style). So of ten million messages each is written again once, and of the tenth million not more
than of the first. In levels it was some ten times, and the more the longer a generation grew: of 1.5 million messages of 100,000 devices
the last third took 10 us of RocksDB's threads each.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    UniversalCompactionStopStyle,
    UniversalCompactOptions,
)

from shards.engine import HOME_FAMILY

MERGED_RUNS = 26
"""Fewer make reading cheaper, as every read looks into all of them, and writing dearer: at 8 a message is written again three times, and at
12 twice. A run is some 31,000 messages of one varying level with an index key, and 35,000 without. Each merge leaves one run more that
stays, so the next is of one less, until what stays is like what comes: then all are merged, after some 300 runs, nine or ten million
messages."""
_LIKE_PERCENT, _LEAST_MERGED = 1_000, 8
"""Runs are merged that lie beside one another, each at most so much larger or smaller than its neighbour, and so many at least. RocksDB's
own rule takes a run as well when all newer ones are as large together. One run too many when a merge begins, or a merged run that is
smaller than what it was made of, was enough for that, and then it took the next larger one too: in most stores of ten million everything
was merged two or three times. With a lower percentage a run that is smaller than others, as a restart leaves one, parts its neighbours,
and these are then merged a few at a time: in a model of 900 runs, of which 2 % are smaller, all is written 2.5 times by this rule, 7
times with 300 %, and 2.6 times by RocksDB's own."""
_ALL_MERGED_NEVER = 1_000_000
"""Per cent of what is out of date at which everything is merged into one run. There is next to nothing out of date in a generation, and
RocksDB only estimates it, by the sizes of runs: at its own 200 it would merge everything whenever a generation has tripled."""
_BLOCK_BYTES = 8 << 10
"""Of the data files of a generation: what RocksDB reads, checks and decompresses at a time. With its own 4 KiB a scan of everything takes
0.06 us of CPU a row more, of 0.5. With 16 KiB it would take another 0.04 less, but a message that is looked up alone and is in no cache
8.6 us instead of 5.7; with 8 it is 6."""
_INDEX_FILE_BYTES, _INDEX_LEVEL_BYTES, _INDEX_RUNS = 2 << 20, 64 << 20, 8
"""Of an index: its data files, all of them in the first of its levels, and how many runs come before that. With RocksDB's own 64 and 256
MiB, and 4, an index was one file, and written again whole four times for each million messages: of the tenth million that was 1.7 us each,
as much as merging the messages. A smaller first level is one level more through which everything goes."""
_SLOWED_RUNS, _STOPPED_RUNS = 64, 128
"""RocksDB delays a write, and the loop with it, when so many runs wait to be merged. Only one merge is made at a time, and a large
one takes a while, in which the load goes on: its own 20 and 36 would be met by an ordinary peak. More runs only make reading dearer."""


@dataclass(frozen=True, slots=True)
class RocksOptions:
    """Sizes in bytes. A shard holds the block cache, and what is written and not flushed: at most ``wal_bytes_max`` over all families,
    and ``write_buffers_max`` buffers of one family. A family that is only there takes some 0.2 MiB."""

    write_buffer_bytes: int = 12 << 20
    write_buffers_max: int = 4
    """When all of a family's are full, writes wait for a flush. RocksDB's own 2 leave a peak less than a second."""
    block_cache_bytes: int = 64 << 20
    wal_bytes_max: int = 64 << 20
    """Beyond it the families that hold back the oldest log file are flushed. Bounds the time to open after a crash."""
    open_files_max: int = 512
    compacts: bool = True
    """False: families that are there are not compacted before `set_compacting` says so."""


def database_options(options: RocksOptions, cache: Cache, paranoid: bool = True, block_bytes: int = 4 << 10) -> Options:
    """Of the database, and what is common to its families. paranoid false: opening passes over broken data files; for whoever does not
    write."""
    table = BlockBasedOptions()
    table.set_block_size(block_bytes)
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    # The index of a data file in pages. Whole, that of a large file is a megabyte, which fits into no shard of a small cache, and is read
    # again for every read: 1.5 ms for the messages of one device of 100,000, where pages take 0.15 ms (with a cache of 32 MiB).
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    made = Options(raw_mode=True)
    made.create_if_missing(True)
    made.set_block_based_table_factory(table)
    made.set_compression_type(DBCompressionType.lz4())
    made.set_write_buffer_size(options.write_buffer_bytes)
    made.set_max_write_buffer_number(options.write_buffers_max)
    made.set_level_zero_slowdown_writes_trigger(_SLOWED_RUNS)
    made.set_level_zero_stop_writes_trigger(_STOPPED_RUNS)
    # What waits to be merged is bounded by the runs above and by the disk's own quota, not by delaying writes.
    made.set_soft_pending_compaction_bytes_limit(0)
    made.set_hard_pending_compaction_bytes_limit(0)
    made.set_max_total_wal_size(options.wal_bytes_max)
    made.set_max_open_files(options.open_files_max)
    # RocksDB's own 16 are begun and ended for each family, whatever files it has: of 30 families those were two thirds of what an opening
    # for looking cost (47 ms of CPU instead of 15), and a reader opens anew after each flush.
    made.set_max_file_opening_threads(1)
    made.set_max_background_jobs(2)
    # Files that nobody needs any more are deleted by RocksDB's threads. Dropping a family does it in the call otherwise, file by file.
    made.set_avoid_unnecessary_blocking_io(True)
    # Data files go to the disk as they are written, not all at once at their end, when a sync of the log would have to wait for them.
    made.set_bytes_per_sync(1 << 20)
    made.set_paranoid_checks(paranoid)
    # A torn end is what a power cut leaves of unsynced writes. What precedes the first damage is kept, in order.
    made.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    # RocksDB's defaults keep a thousand info logs without a bound in size.
    made.set_keep_log_file_num(2)
    made.set_max_log_file_size(1 << 20)
    made.set_stats_dump_period_sec(0)
    made.set_stats_persist_period_sec(0)
    made.set_manifest_preallocation_size(64 << 10)
    made.set_max_manifest_file_size(16 << 20)
    return made


def home_options(options: RocksOptions, cache: Cache) -> Options:
    """Of family 0."""
    made = database_options(options, cache)
    # Files that are mostly deletions are compacted soon. Otherwise the rows of a million sessions that have ended would lie on the
    # disk until as much again has been written.
    made.add_compact_on_deletion_collector_factory(10_000, 5_000, 0.5)
    return made


def generation_options(options: RocksOptions, cache: Cache) -> Options:
    """Of the family of a generation. One that is older than families of indexes has pages among its messages, a twentieth of what there is:
    those that are deleted go when runs are merged, as merging for their sake rewrites the messages beside them."""
    made = database_options(options, cache, block_bytes=_BLOCK_BYTES)
    made.set_compaction_style(DBCompactionStyle.universal())
    merging = UniversalCompactOptions()
    merging.max_size_amplification_percent = _ALL_MERGED_NEVER
    merging.stop_style = UniversalCompactionStopStyle.similar()  # type: ignore[call-arg, func-returns-value, assignment]  # wrong in its stub
    merging.size_ratio = _LIKE_PERCENT
    merging.min_merge_width = _LEAST_MERGED
    made.set_universal_compaction_options(merging)
    made.set_level_zero_file_num_compaction_trigger(MERGED_RUNS)
    return made


def index_options(options: RocksOptions, cache: Cache) -> Options:
    """Of the family of a generation's index. Its pages are folded into others and deleted, and each read of a single device looks for some
    of them: merged in levels, there are few files to look into, and those that are mostly deletions are compacted soon."""
    made = home_options(options, cache)
    # Hashes are not compressible. Trying it was half of what merging cost, and of a page that is read.
    made.set_compression_type(DBCompressionType.none())
    made.set_target_file_size_base(_INDEX_FILE_BYTES)
    made.set_max_bytes_for_level_base(_INDEX_LEVEL_BYTES)
    made.set_level_zero_file_num_compaction_trigger(_INDEX_RUNS)
    return made


@dataclass(frozen=True, slots=True)
class FamilyOptions:
    home: Options
    generation: Options
    index: Options

    def of(self, family: int) -> Options:
        """By its number."""
        if family == HOME_FAMILY:
            return self.home
        return self.generation if family > HOME_FAMILY else self.index


def options_of_families(options: RocksOptions, cache: Cache) -> FamilyOptions:
    return FamilyOptions(home_options(options, cache), generation_options(options, cache), index_options(options, cache))
