"""What a shard says of itself: its own figures, and under EMQX's names those that mean the same there.

A *flush* there is a record with messages here: written when it comes, committed by the next sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.metrics.latency import Latency, Recent
from actors.metrics.names import Metric, counters, gauges
from shards.counting import Counting

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

_SHARD = ("shard",)
_EMQX = ("db", "shard")
DB: Final = "messages"

COUNTERS: Final = counters("holdfast_shard", "shard", {
    "messages_stored": "Messages written to the store; some of the newest may not be committed.",
    "bytes_stored": "Bytes of those messages as they are stored, with client, topic and properties.",
    "payload_bytes_stored": "Bytes of their payloads.",
    "messages_nobody": "Messages that no durable subscription wanted, and that were not stored therefore.",
    "messages_repeated": "QoS 2 messages that came again and were known.",
    "messages_stale": "Messages of connections that a newer one of their client has replaced; dropped.",
    "messages_refused": "Messages refused because there is no room: the quota, or the disk.",
    "ids_timed_out": "QoS 2 messages whose PUBREL did not come within `mqtt.await_rel_timeout`.",
    "filters_matched": "Times that a filter was matched with the learned topic structure.",
    "sessions_expired": "Sessions that ended because their time was over.",
    "sessions_ended": "Sessions that ended, for whatever reason.",
    "session_rows_collected": "Rows of ended sessions that were erased.",
    "timers_fired": "Wills, expiries and delayed messages that were due.",
    "generations_dropped": "Generations that retention has dropped.",
    "unread_pages": "Pages of sessions that were asked whether they want what is to be dropped (`hold_unread`).",
    "leases_expired": "Leases that nobody has renewed in time.",
    "lease_losses": "Times that a lease lost messages, because it was beyond its bounds.",
    "wills_denied": "Wills that the rules did not let be published when they were due.",
    "retained_withheld": "Retained messages that were not given out, because who published them may not publish there any more.",
    "retained_expired": "Retained messages whose Message Expiry Interval was over.",
    "delayed_denied": "Delayed messages that the rules did not let be published when they were due.",
    "messages_appended": "Messages that writers, Spark for one, have put in.",
    "appends_repeated": "Blocks of writers that came again and were known.",
    "reads_damaged": "Reads that met damage on the disk.",
    "generations_lost": "Generations that could not be opened at the start of the shard.",
})  # fmt: skip
GAUGES: Final = gauges("holdfast_shard", "shard", {
    "routes": "Durable subscriptions of the whole store, which every shard knows.",
    "connections": "Connections whose home is here, of durable sessions and others.",
    "away": "Sessions that are at home here and have no connection.",
    "retained": "Retained messages that are at home here.",
    "tail_bytes": "Bytes of the newest messages that are held in memory.",
    "bundled_rows": "Rows of sessions that are stored together with others, and held in memory.",
    "sessions_being_erased": "Ended sessions of which there still are rows.",
    "timers_late_ms_max": "The longest that something came after it was due, since the start.",
    "expiry_suspended": "1 while nothing expires, because the clock jumped over a restart.",
    "generations_held": "Generations whose time is over and that somebody holds.",
    "leases": "Leases.",
    "quota_level": "0: there is room. 1: above the soft mark. 2: new messages are refused.",
    "quota_bytes": "`storage_quota`, of all shards together; 0: unlimited.",
    "quota_taken_bytes": "What the stores of all shards have taken of it; 0 where there is no quota.",
    "messages_delayed": "Delayed messages that wait for their time.",
    "writers": "Writers that are known.",
})  # fmt: skip
GC_FOUND: Final = Metric(
    "holdfast_shard_gc_found_total", "counter", ("shard", "kind"),
    "What the sweep has found that timers and records had missed: a fault of ours, and mended.",
)  # fmt: skip
GENERATIONS: Final = Metric("holdfast_shard_generations", "gauge", _SHARD, "Generations that are there.")
COMMIT: Final = Metric("holdfast_shard_commit_seconds", "histogram", _SHARD, "From writing a record until it is on disk (fsync).")
SYNC: Final = Metric("holdfast_shard_sync_seconds", "histogram", _SHARD, "How long a sync of the log took.")
WRITE: Final = Metric("holdfast_shard_write_seconds", "histogram", _SHARD, "How long writing a record took, without the sync.")
LAG: Final = Metric(
    "holdfast_shard_watermark_lag_seconds", "gauge", _SHARD, "How long the oldest record has been waiting for its commit; 0: none is.",
)  # fmt: skip
HELD: Final = Metric("holdfast_shard_records_held", "gauge", _SHARD, "Records that the full disk has not taken.")

BATCHES: Final = "Records with messages that were committed."
MESSAGES: Final = "Messages that were committed."
BYTES: Final = "Bytes of the payloads of those messages."
RETRY: Final = "Records that a full disk has refused; they are written again."
FAILED: Final = "Records with messages that were not committed when the disk failed. The process ends with that."
FLUSH_TIME: Final = "Microseconds from writing a record with messages until it is committed, mean of the last 5 minutes."
_FIGURES: Final = {"batches": BATCHES, "batches_retry": RETRY, "batches_failed": FAILED, "messages": MESSAGES, "bytes": BYTES}
EGRESS: Final = {key: Metric(f"emqx_ds_egress_{key}", "counter", _EMQX, text) for key, text in _FIGURES.items()}
BUFFER: Final = {key: Metric(f"emqx_ds_buffer_{key}", "counter", _EMQX, text) for key, text in _FIGURES.items()}
FLUSH_TIMES: Final = tuple([Metric(f"emqx_ds_{each}_flush_time", "gauge", _EMQX, FLUSH_TIME) for each in ("egress", "buffer")])
PERSISTED: Final = Metric("emqx_messages_persisted", "counter", _EMQX, MESSAGES)
STORE_TIME: Final = Metric(
    "emqx_ds_store_batch_time", "gauge", _EMQX, "Microseconds that writing a record took, without the sync; mean of the last 5 minutes."
)
NEXT_TIME: Final = Metric(
    "emqx_ds_builtin_next_time", "gauge", _EMQX,
    "Microseconds that reading the next messages of a session took, or a range again; mean of the last 5 minutes.",
)  # fmt: skip
_MOVES: Final = {
    "seek": "Jumps to a place that reads have made.",
    "next": "Steps from one key to its neighbour that reads have made.",
    "hash_collision": "Messages that the index named and whose topic is another one, as hashes are equal.",
    "hit": "Messages that the index named and that were read.",
    "miss": "Places that one level's index had and another level's had not.",
    "end_of_stream": "Reads of a stream that found its end.",
    "collision": "Messages that were looked at and whose topic is another one, as hashes are equal.",
}
MOVES: Final = (
    *[(Metric(f"emqx_ds_storage_skipstream_lts_{kind}", "counter", _EMQX, _MOVES[kind]), (("pagestream", kind), ("skipstream", kind)))
      for kind in ("seek", "next", "hash_collision", "hit", "miss", "end_of_stream")],
    *[(Metric(f"emqx_ds_storage_bitfield_lts_counter_{kind}", "counter", _EMQX, _MOVES[kind]), (("wildcard_optimized", kind),))
      for kind in ("seek", "next", "collision")],
)  # fmt: skip
"""Each with the moves that it is the sum of, by layout and kind: two layouts have their messages in the order of positions."""
METRICS: Final = (
    *COUNTERS.values(), *GAUGES.values(), GC_FOUND, GENERATIONS, COMMIT, SYNC, WRITE, LAG, HELD,
    *EGRESS.values(), *BUFFER.values(), *FLUSH_TIMES, PERSISTED, STORE_TIME, NEXT_TIME, *[metric for metric, _ in MOVES],
)  # fmt: skip
_FOUND = "gc_found_"


class UnderWay(NamedTuple):
    """A record that is written, or held, and not committed; what had been stored with it."""

    position: int
    began: float
    messages: int
    payload_bytes: int


class ShardFigures:
    """Followed by the shell: a record at a time, never a message."""

    def __init__(self, shard: int, clock: Callable[[], float] = monotonic) -> None:
        self._shard = str(shard)
        self.clock = clock
        self.commit, self.sync, self.write = Latency(), Latency(), Latency()
        self._under_way: deque[UnderWay] = deque()
        self._told = self._done = UnderWay(-1, 0.0, 0, 0)
        """The newest that was submitted, and the newest that was committed."""
        self.batches = self.failed = self.retried = 0
        self._flush_s = 0.0
        self._flushes, self._writes, self._reads = Recent(), Recent(), Recent()

    def submitted(self, position: int, counting: Counting) -> None:
        """counting: what is stored with this record and those before it."""
        self._told = UnderWay(position, self.clock(), counting.stored, counting.payload_bytes)
        self._under_way.append(self._told)

    def committed(self, position: int) -> None:
        now = self.clock()
        waiting = self._under_way
        while waiting and waiting[0].position <= position:
            record = waiting.popleft()
            self.commit.note(now - record.began)
            if record.messages > self._done.messages:
                self.batches += 1
                self._flush_s += now - record.began
            self._done = record

    def lost(self) -> None:
        """The disk has failed: nobody knows what became of what is under way."""
        before = self._done.messages
        for record in self._under_way:
            self.failed += record.messages > before
            before = record.messages

    def tell(
        self, sheet: Sheet, counted: Mapping[str, int], moves: Mapping[tuple[str, str], int], generations: int, held: int
    ) -> None:  # fmt: skip
        """counted: actors.shard.ShardServer.counters."""
        shard, now = self._shard, self.clock()
        for name, metric in COUNTERS.items():
            sheet.count(metric, counted[name], shard)
        for name, metric in GAUGES.items():
            sheet.level(metric, counted[name], shard)
        for name, number in counted.items():
            if name.startswith(_FOUND):
                sheet.count(GC_FOUND, number, shard, name.removeprefix(_FOUND))
        sheet.level(GENERATIONS, generations, shard)
        sheet.level(HELD, held, shard)
        sheet.level(LAG, now - self._under_way[0].began if self._under_way else 0.0, shard)
        for metric, latency in ((COMMIT, self.commit), (SYNC, self.sync), (WRITE, self.write)):
            sheet.spread(metric, latency, shard)
        self._tell_emqx(sheet, counted, moves, now)

    def _tell_emqx(self, sheet: Sheet, counted: Mapping[str, int], moves: Mapping[tuple[str, str], int], now: float) -> None:
        labels = (DB, self._shard)
        done = self._done
        figures = {
            "batches": self.batches, "batches_retry": self.retried, "batches_failed": self.failed,
            "messages": done.messages, "bytes": done.payload_bytes,
        }  # fmt: skip
        for key, number in figures.items():
            sheet.count(EGRESS[key], number, *labels)
            sheet.count(BUFFER[key], number, *labels)
        sheet.count(PERSISTED, done.messages, *labels)
        flush_us = self._flushes.mean(now, self.batches, self._flush_s) * 1e6
        for metric in FLUSH_TIMES:
            sheet.level(metric, flush_us, *labels)
        sheet.level(STORE_TIME, self._writes.mean(now, self.write.count, self.write.sum) * 1e6, *labels)
        sheet.level(NEXT_TIME, self._reads.mean(now, counted["reads"], counted["read_ns"] / 1e9) * 1e6, *labels)
        for metric, kinds in MOVES:
            sheet.count(metric, sum([moves.get(kind, 0) for kind in kinds]), *labels)
