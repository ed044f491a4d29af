"""`$delayed/SECONDS/topic`: a message to `topic`, so many seconds after its acknowledgement.

Here only what such a name says; what waits is a row of the publisher's home shard (shards.delayed).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mqtt.packets import PublishRun

DELAYED: Final = b"$delayed/"
_DIGITS_MAX: Final = 10
SENSELESS: Final = -1
"""In place of seconds: the name says no delay, no topic, or a longer delay than is allowed.  Then it stays what it is, a name to which
nobody may publish."""


class Delays(NamedTuple):
    """The run with the topics behind the delays, and the delays of its messages in seconds."""

    run: PublishRun
    seconds: list[int]


def is_delayed(topic: bytes) -> bool:
    return topic.startswith(DELAYED)


def read_delays(run: PublishRun, seconds_max: int) -> Delays:
    """All messages of the run are delayed ones."""
    rows = [read_delay(topic, seconds_max) for topic in run.topics]
    return Delays(PublishRun(run.flags, run.packet_ids, [topic for topic, _ in rows], run.bodies), [seconds for _, seconds in rows])


def read_delay(topic: bytes, seconds_max: int) -> tuple[bytes, int]:
    """The topic behind the delay, and the delay."""
    digits, _, behind = topic.removeprefix(DELAYED).partition(b"/")
    if not behind or not digits.isdigit() or len(digits) > _DIGITS_MAX or int(digits) > seconds_max:
        return topic, SENSELESS
    return behind, int(digits)
