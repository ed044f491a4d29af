"""The bounds of the core of a bridge, and what it counts.

Where the values come from (config.bridges) and where the counts go (metrics) is the shell's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

By = Literal["topic", "publisher", "key"]


@dataclass(frozen=True, slots=True)
class Options:
    inflight_max: int = 2_000
    """What the broker sends at most before it hears PUBREC."""
    batch_count_max: int = 500
    batch_bytes_max: int = 1 << 20
    linger_ms: int = 20
    lanes: int = 1
    lanes_by: By = "topic"
    rate_max: int = 0
    """Messages a second; 0: as many as there are."""
    retry_min_ms: int = 500
    retry_max_ms: int = 30_000
    breaker_after: int = 5
    dead_letter_topic: str = "dead-letters"


@dataclass(slots=True)
class Counters:
    """What happened since the start; only grows.  The shell exports every field as a metric of the same name."""

    received: int = 0
    """Messages from the store, once each."""
    delivered: int = 0
    delivered_bytes: int = 0
    """Of payloads."""
    batches: int = 0
    left_out: int = 0
    """By `transform.where`, or because they had come from this store."""
    retried: int = 0
    """Messages that were handed to the target once more, after a failure."""
    repeated: int = 0
    """Messages that came again and that the target knew that it had."""
    refused: int = 0
    """By the target, or because the transform could not be made; each becomes a dead letter."""
    dead_letters: int = 0
    dead_letters_dropped: int = 0
    """Refused ones that came from the topic of dead letters: there is nowhere else to put them."""
    failures: int = 0
    """Times that a target could not be opened, or did not take a batch."""
