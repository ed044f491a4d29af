"""Batches as a bridge makes them, and the context of a target."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bridge.port import Batch, Context, Message

STORE = "0123456789abcdef"


def message(number: int, topic: str = "", payload: bytes = b"", **rest: object) -> Message:
    """Of the delivery with that number; its position grows with it."""
    topic = topic or f"plant/{number % 3}"
    base = Message(
        number=number,
        shard=2,
        position=1_000_000 + number,
        topic=topic,
        payload=payload or f"payload {number}".encode(),
        qos=1,
        retain=False,
        published_at_ms=1_790_000_000_000 + number,
        publisher="sensor-ä",
        key=topic,
    )
    return base._replace(**rest)  # type: ignore[arg-type]  # fields of Message, by name


def batch(numbers: Iterable[int], epoch: str = "made-1") -> Batch:
    return Batch(epoch, tuple([message(number) for number in numbers]))


def context(tmp_path: Path, lane: int = 0, lanes: int = 1, **secrets: bytes) -> Context:
    """secrets: by the name after `env:`."""

    def secret(place: str) -> bytes:
        return secrets[place.removeprefix("env:")]

    return Context("to-there", lane, lanes, STORE, tmp_path, tmp_path / "bridges" / "to-there", secret)
