"""What gateways and the plugin's process say to each other over a link.

    Ask   [number, kind, fields...] for each question of a turn; numbers are the gateway's, and come once
    Told  [number, answer...] for each that is answered; in any order
    Invalidate  what was answered before, about these users or about all, counts no more

A question that is not answered was lost with the link.  Arrays of msgpack; who sends anything else is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Final, TypeAlias

import msgpack

from access.asked import Asked
from access.identity import Identity
from access.login import Login

_ASK, _TOLD, _INVALIDATE = 1, 2, 3
_LOGIN, _MAY = 1, 2
_ACTIONS: Final = ("publish", "subscribe", "receive")
_FIELDS: Final = tuple([each.name for each in fields(Login)])


class Failed(IntEnum):
    """Why there is no answer."""

    RAISED = 1
    FULL = 2


@dataclass(frozen=True, slots=True)
class Allowed:
    """identity: packed; no bytes: the anonymous one."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class Denied:
    code: int


Answer: TypeAlias = Allowed | Denied | bool | Failed


@dataclass(frozen=True, slots=True)
class Ask:
    questions: tuple[tuple[int, Login | Asked], ...]


@dataclass(frozen=True, slots=True)
class Told:
    answers: tuple[tuple[int, Answer], ...]


@dataclass(frozen=True, slots=True)
class Invalidate:
    """users None: all."""

    users: tuple[str, ...] | None


Frame: TypeAlias = Ask | Told | Invalidate


def encode(frame: Frame) -> bytes:
    row: tuple[Any, ...]
    match frame:
        case Ask(questions):
            row = (_ASK, [(number, *_question(question)) for number, question in questions])
        case Told(answers):
            row = (_TOLD, [(number, *_answer(answer)) for number, answer in answers])
        case Invalidate(users):
            row = (_INVALIDATE, users)
    return bytes(msgpack.packb(row, use_bin_type=True))


def decode(data: bytes) -> Frame:
    """Raises ValueError."""
    try:
        kind, content = msgpack.unpackb(data, raw=False, use_list=False)
        if kind == _ASK:
            return Ask(tuple([(int(number), _asked(*question)) for number, *question in content]))
        if kind == _TOLD:
            return Told(tuple([(int(number), _told(*answer)) for number, *answer in content]))
        if kind == _INVALIDATE:
            return Invalidate(None if content is None else tuple([str(user) for user in content]))
    except (msgpack.UnpackException, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"no frame of a plugin's link: {type(error).__name__}") from None
    raise ValueError(f"frame of the unknown kind {kind!r}")


def _question(question: Login | Asked) -> tuple[Any, ...]:
    if isinstance(question, Login):
        return (_LOGIN, *[getattr(question, name) for name in _FIELDS])
    return (_MAY, question.who.pack(), question.client, _ACTIONS.index(question.action), question.topic)


def _asked(kind: int, *given: Any) -> Login | Asked:
    if kind == _LOGIN:
        return Login(*given)
    if kind == _MAY:
        who, client, action, topic = given
        return Asked(Identity.unpack(who), client, _ACTIONS[action], topic)
    raise ValueError(f"question of the unknown kind {kind!r}")


def _answer(answer: Answer) -> tuple[Any, ...]:
    match answer:
        case Allowed(identity):
            return (1, identity)
        case Denied(code):
            return (2, code)
        case bool():
            return (3, answer)
        case Failed():
            return (4, int(answer))


def _told(kind: int, value: Any) -> Answer:
    match kind, value:
        case 1, bytes():
            return Allowed(value)
        case 2, int():
            return Denied(value)
        case 3, bool():
            return value
        case 4, int():
            return Failed(value)
    raise ValueError(f"answer of the unknown kind {kind!r}")
