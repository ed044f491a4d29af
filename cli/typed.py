"""What people type behind a command, in the words of the program; nonsense ends the command with one sentence and code 2."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from cli.stores import refuse
from config.values import INFINITY, Duration, Size
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter, is_shared


def checked_filter(text: str) -> str:
    try:
        found = check_topic_filter(text)
    except ProtocolError as error:
        refuse(f"{text!r} is no topic filter: {error}.", 2)
    if is_shared(found):
        refuse(f"{text!r} begins with $share: name the topics themselves.", 2)
    return found.decode()


def checked_filters(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(checked_filter(text) for text in texts or [])


def duration_ms(text: str) -> int:
    try:
        return Duration.parse(text).ms
    except ValueError:
        refuse(f'{text!r} is no duration: one such as "12h" or "7d" is wanted.', 2)


def duration_or_none(text: str) -> int | None:
    """None: infinity."""
    found = duration_ms(text)
    return None if found >= INFINITY else found


def size_or_none(text: str) -> int | None:
    """None: infinity."""
    try:
        found = int(Size.parse(text))
    except ValueError:
        refuse(f'{text!r} is no size: one such as "10GiB", or "infinity", is wanted.', 2)
    return None if found >= INFINITY else found


def moment_ms(text: str) -> int:
    """Milliseconds since 1970: so long ago, or a date and time."""
    try:
        return int(time.time() * 1000) - Duration.parse(text).ms
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        refuse(f"{text!r} is no time: a duration such as 2h, or a date and time such as 2026-01-31T12:00 is wanted.", 2)
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
