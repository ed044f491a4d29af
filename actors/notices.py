"""What a shard's core wants people to know: a line of the log each, and an alarm while clients take an id from one another.

Names come from outside: at most NAME_BYTES_MAX of each are shown, and what does not print is escaped.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from actors.alarms import Alarm, clear_alarm, raise_alarm
from shards.events import Adopted, Contended, GroupDeclared, GroupDropped, Notice, Peace

log = structlog.get_logger(__name__)

NAME_BYTES_MAX = 256
_CONTENDED = "contended"


def forget_alarm(run_dir: Path, member: str) -> None:
    """A process that begins knows of no contended client."""
    clear_alarm(run_dir, member, _CONTENDED)


def tell(notice: Notice, run_dir: Path, member: str) -> None:
    """member: of the process, as `status` lists it."""
    match notice:
        case Adopted(client, user):
            log.info("session.adopted", client_id=shown(client), user=shown(user))
        case Contended(client, there, newcomer, wait_ms):
            log.warning(
                "client.contended", client_id=shown(client), user=shown(there[0]), address=there[1],
                newcomer=shown(newcomer[0]), newcomer_address=newcomer[1], wait_ms=wait_ms,
            )  # fmt: skip
            cause = f"client id {shown(client)} is taken by {_who(*newcomer)} from {_who(*there)}, again and again"
            raise_alarm(run_dir, Alarm(member, _CONTENDED, cause))
        case Peace():
            forget_alarm(run_dir, member)
        case GroupDeclared(filter, said, strategy, by):
            log.info("group.declared", group=shown(filter), by=by, begins=said, strategy=strategy or None)
        case GroupDropped(filter, members, by):
            log.info("group.dropped", group=shown(filter), by=by, left_to=members)


def shown(name: bytes) -> str:
    text = name[:NAME_BYTES_MAX].decode(errors="replace")
    return "".join([each if each.isprintable() else f"\\u{ord(each):04x}" for each in text])


def _who(user: bytes, address: str) -> str:
    return f"{shown(user) or 'somebody without a name'} at {address or 'an unknown address'}"
