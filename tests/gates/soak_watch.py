"""What a broker takes while it is soaked: memory and descriptors of its processes by role, and the rows of its homes.

Processes that are killed come back, so figures are compared by role: the median of the second fifth of the time with that of the last
fifth. A process in its first seconds says nothing and is left out. Beside that, how a process grows within its own life, for those that
were left alone for long enough. Home rows are counted in the store itself, opened for reading beside the shard that owns it.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import cast

import psutil
from rocksdict import AccessType, Options, Rdict

from tests.broker.running import Process
from tests.gates.footprint import MB, disk_bytes, pss_bytes

BAD_EVENTS = frozenset(
    {
        "process.broken", "shard.failed", "shard.damage", "shard.generations_lost", "shard.gc_found", "gateway.stuck",
        "driver.does_not_stop", "run.not_ended", "gateway.unexpected_frame", "session.unexpected_frame", "shard.unexpected_frame",
    }
)  # fmt: skip
_EVENT = re.compile(r"\bevent=(\S+)")
OPEN_TRIES = 5
YOUNG_S = 10.0
LONG_LIFE_S = 150.0
MEMORY_MORE, MEMORY_MORE_MB = 1.15, 10.0
DESCRIPTORS_MORE, DESCRIPTORS_MORE_COUNT = 1.25, 16.0
ROWS_MORE, ROWS_MORE_COUNT = 1.25, 100.0
NO_BOUND = float("inf")
SETTLED_S = {"c": 600.0, "T": 600.0, "z": NO_BOUND}
"""Kinds of home rows that grow for so long before the oldest go: connections of sessions that have expired, and timers to end
those; and for ever, a few bytes for each process that was killed, senders that are refused."""
SENDERS_KEPT_S = 400.0
"""The answers to a sender that was killed, rows of kind ``n``, are kept for 5 minutes, and then it is refused, a row of kind ``z``.
How many there are follows the kills, so it is judged who is kept for longer: only those that live.  A shard counts these minutes of
its own time, anew when it was killed itself; so it is judged whenever the shards have been up for long enough."""
SLOTS = 64
"""Answers that are kept for one sender in one shard."""
LIVING_MAX = 30
"""Senders that live, in all shards together, with room for those that a count misses."""


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    role: str
    pid: int
    age_s: float
    pss_mb: float
    descriptors: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Of all shards together: home rows and bytes by kind, and what the directory takes on the disk."""

    at_s: float
    counts: Counter[str]
    senders: int
    """Of whom answers are kept, in each shard."""
    bytes: int
    disk_bytes: int


@dataclass(slots=True)
class Watch:
    """Grows while the soak runs."""

    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    newest: list[Sample] = field(default_factory=list)
    rows: list[Rows] = field(default_factory=list)

    def look(self, processes: Iterable[Process]) -> None:
        at_s = time.monotonic() - self.began
        self.newest = []
        for each in processes:
            try:
                age_s = time.time() - psutil.Process(each.pid).create_time()
                descriptors = len(os.listdir(f"/proc/{each.pid}/fd"))
                pss_mb = pss_bytes([each.pid]) / MB
            except (psutil.NoSuchProcess, OSError):
                continue
            if pss_mb:
                self.newest.append(Sample(at_s, each.role if each.role != "ray" else each.name, each.pid, age_s, pss_mb, descriptors))
        self.samples += self.newest

    def count_rows(self, stores: Iterable[Path], data_dir: Path) -> None:
        counts: Counter[str] = Counter()
        senders: set[tuple[Path, bytes]] = set()
        size = 0
        for store in stores:
            for key, length in home_rows(store):
                counts[chr(key[0])] += 1
                size += len(key) + length
                if key[:1] == b"n":
                    senders.add((store, key[:-1]))
        self.rows.append(Rows(time.monotonic() - self.began, counts, len(senders), size, disk_bytes(data_dir)))


def home_rows(store: Path) -> Iterable[tuple[bytes, int]]:
    """Keys of family 0 and the length of their values, as they are in the store now, while its shard works on."""
    failed: Exception | None = None
    for _ in range(OPEN_TRIES):
        try:
            return _rows_of(str(store))
        except Exception as error:  # rocksdict has no other; a log file that the shard has deleted meanwhile makes opening fail
            failed = error
            time.sleep(0.2)
    raise AssertionError(f"{store} could not be read") from failed


def _rows_of(store: str) -> list[tuple[bytes, int]]:
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(store, Options(raw_mode=True))}
    db = Rdict(store, Options(raw_mode=True), families, AccessType.read_only())
    try:
        return [(cast("bytes", key), len(cast("bytes", value))) for key, value in db.items()]
    finally:
        db.close()


def bad_events(log_dir: Path) -> Counter[str]:
    """Events in the logs that no kill explains, and how often each was logged."""
    found: Counter[str] = Counter()
    for path in log_dir.glob("*.log*"):
        for line in path.read_text(errors="replace").splitlines():
            match = _EVENT.search(line)
            if match and match[1] in BAD_EVENTS:
                found[f"{match[1]} in {path.name}"] += 1
    return found


def fifth(values: list[tuple[float, float]], which: int, total_s: float) -> float | None:
    """The median of the values, each with its time, in the which-th fifth."""
    found = [value for at_s, value in values if total_s * (which - 1) / 5 <= at_s <= total_s * which / 5]
    return median(found) if found else None


def compare(
    name: str, values: list[tuple[float, float]], total_s: float, factor: float, more: float, unit: str = ""
) -> tuple[str, bool] | None:
    """(for people, flat or not); None when it was not seen in both fifths."""
    second, last = fifth(values, 2, total_s), fifth(values, 5, total_s)
    if second is None or last is None:
        return None
    return f"{name} {second:.0f} -> {last:.0f}{unit}", last <= second * factor + more


def judge(watch: Watch, total_s: float) -> tuple[list[str], list[str]]:
    """(figures, what is not flat)."""
    by_role: dict[str, list[Sample]] = defaultdict(list)
    for sample in watch.samples:
        if sample.age_s >= YOUNG_S:
            by_role[sample.role].append(sample)
    judged: list[tuple[str, bool] | None] = []
    for role, samples in sorted(by_role.items()):
        memory = [(each.at_s, each.pss_mb) for each in samples]
        judged.append(compare(f"{role} PSS", memory, total_s, MEMORY_MORE, MEMORY_MORE_MB, " MB"))
        descriptors = [(each.at_s, float(each.descriptors)) for each in samples]
        judged.append(compare(f"{role} descriptors", descriptors, total_s, DESCRIPTORS_MORE, DESCRIPTORS_MORE_COUNT))
    for kind in sorted({kind for each in watch.rows for kind in each.counts}):
        rows = [(each.at_s, float(each.counts[kind])) for each in watch.rows]
        settled = total_s * 0.3 >= SETTLED_S.get(kind, 0.0)
        more = ROWS_MORE_COUNT if settled and kind != "n" else NO_BOUND
        judged.append(compare(f"home rows {kind!r}", rows, total_s, ROWS_MORE, more))
    if watch.rows:
        most = max(each.counts["n"] / max(1, each.senders) for each in watch.rows)
        judged.append((f"at most {most:.0f} answers kept for a sender", most <= SLOTS))
        late = kept_for_long(watch)
        kept = "nobody knows how many" if late is None else f"at most {late}"
        judged.append((f"{kept} senders kept for {SENDERS_KEPT_S:.0f} s", late is None or late <= LIVING_MAX))
    judged += lives(watch)
    seen = [each for each in judged if each is not None]
    return [figure for figure, _ in seen], [figure for figure, flat in seen if not flat]


def kept_for_long(watch: Watch) -> int | None:
    """The most senders at any time that had been there for SENDERS_KEPT_S of the shards' lives: all that were known then but those
    refused since.  None: no time at which all shards had been up for so long."""
    most: int | None = None
    for now in watch.rows:
        before = [each for each in watch.rows if each.at_s <= now.at_s - SENDERS_KEPT_S]
        if before and shards_up_s(watch, now.at_s) >= SENDERS_KEPT_S:
            most = max(most or 0, before[-1].senders + before[-1].counts["z"] - now.counts["z"])
    return most


def shards_up_s(watch: Watch, at_s: float) -> float:
    """How long the youngest shard had been up at this time."""
    seen = [each for each in watch.samples if each.role == "shard" and each.at_s <= at_s]
    return min((at_s - each.at_s + each.age_s for each in seen if each.at_s == seen[-1].at_s), default=0.0)


def lives(watch: Watch) -> list[tuple[str, bool] | None]:
    """For each role, the process that grew most within a long life: from its second fifth to its last."""
    by_pid: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in watch.samples:
        by_pid[sample.role, sample.pid].append(sample)
    worst: dict[str, tuple[float, tuple[str, bool] | None]] = {}
    for (role, _), samples in by_pid.items():
        life_s = samples[-1].age_s - samples[0].age_s
        if life_s < LONG_LIFE_S:
            continue
        began = samples[0].age_s
        values = [(each.age_s - began, each.pss_mb) for each in samples]
        grown = (fifth(values, 5, life_s) or 0.0) - (fifth(values, 2, life_s) or 0.0)
        if role not in worst or grown > worst[role][0]:
            name = f"the {role} that grew most, in {life_s:.0f} s of its life,"
            worst[role] = (grown, compare(name, values, life_s, MEMORY_MORE, MEMORY_MORE_MB, " MB"))
    return [judged for _, (_, judged) in sorted(worst.items())]
