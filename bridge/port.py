"""What a bridge asks of a target, and what a target is given.

A target is one connection to what messages are carried to; it knows nothing of stores, retries or other connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol


class Message(NamedTuple):
    """One message after the transform.  (epoch of its batch, number) and (store, shard, position) are the same on every sending.

    number: of the delivery: grows within an epoch in the order of delivery, with holes (what was left out, or went to other lanes); a
    rewind gives new, higher numbers to the same messages.
    shard, position: of the message in the store, for ever; a rewind does not change them.  The key for upserts, and for idempotency.
    """

    number: int
    shard: int
    position: int
    topic: str
    payload: bytes
    qos: int
    """As it was published."""
    retain: bool
    published_at_ms: int
    """Wall clock, when its gateway took it on."""
    publisher: str
    """Client id; empty: the broker itself."""
    user_properties: tuple[tuple[str, str], ...] = ()
    content_type: str = ""
    response_topic: str = ""
    correlation_data: bytes = b""
    payload_is_text: bool = False
    expires_at_ms: int = 0
    """Wall clock; 0: never."""
    key: str = ""


class Batch(NamedTuple):
    """Never empty, in order: FIFO for each publisher and topic; what comes again has the same numbers.

    epoch: within which numbers count, at most 80 characters.  With another one the bridge was made anew, or the store restored: numbers of
    different epochs cannot be compared.
    """

    epoch: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """This message will never be accepted: it is too large, or not what the target takes.  It becomes a dead letter.

    reason: a sentence, without the payload.
    """

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The first `done` messages are settled: the target has accepted them durably, but for the refused ones, each of which is among them.
    The others come again, first and in order."""

    done: int
    refused: tuple[Refusal, ...] = ()


class Unavailable(Exception):
    """The target is away, or has too much to do.  Nothing is known of the batch, which comes again whole."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Misconfigured(Exception):
    """A wrong password, a table or a library that is not there: somebody has to do something.  Tried again at the longest interval."""


class Accepted(NamedTuple):
    """What the target itself remembers of this lane: everything that it was given up to this number of that epoch."""

    epoch: str
    number: int


class Context(NamedTuple):
    """bridge: its name, of letters, digits, _ and -.  lane: of `lanes`, from 0 on; messages of one key always take the same, and each has
    a target of its own.  store: its id, for ever the same.  data_dir: of the broker, for relative paths.  state_dir: for files of the
    bridge's own, made by whoever wants it.  secret: what lies at the place of a Secret; raises KeyError."""

    bridge: str
    lane: int
    lanes: int
    store: str
    data_dir: Path
    state_dir: Path
    secret: Callable[[str], bytes]


class Target(Protocol):
    """made -> opened -> closed.  Calls never overlap, but `close` may come while another is being cancelled.

    After any exception of `open` or `deliver`, and when one of them took too long and was cancelled, it is closed and another one is made.
    """

    exactly_once: ClassVar[bool]
    """Whether a message that is sent again is not there twice."""

    async def open(self) -> Accepted | None:
        """Connect.  What it remembers is left out of what it is given; None: it remembers nothing, or finds out by itself.  One that
        remembers refuses nothing: what it had refused before a crash would count as accepted.

        Raises Unavailable, Misconfigured."""

    async def deliver(self, batch: Batch) -> Outcome:
        """Raises Unavailable, Misconfigured."""

    async def close(self) -> None:
        """Raises nothing, takes 5 s at most, may be called twice."""
