"""What a worker tells: plain figures, as JSON lines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Write:
    """process_us: per message, CPU of all threads, so flushing and compaction too, and the syncs. slice_max_ms: of idle work."""

    process_us: float
    slice_max_ms: float


@dataclass(frozen=True, slots=True)
class Read:
    """us: CPU, per message, or per filter when many filters were read.  seeks, entries: what the engine was asked for and gave, per
    message."""

    us: float
    first_us: float
    messages: int
    seeks: float
    entries: float


@dataclass(frozen=True, slots=True)
class Folded:
    """Idle work after sealing, until there was no more."""

    us_per_message: float
    slice_max_ms: float


@dataclass(frozen=True, slots=True)
class Opened:
    """bytes: on disk per message, after everything was flushed.  open_ms: until the store took requests again."""

    bytes_per_message: float
    open_ms: float
