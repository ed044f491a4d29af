"""Answers questions with plugins: each in a task of its own, so that a slow one holds up nobody who does not wait for it.

Always holds: a question has one answer; who raises has given none (Failed), and what was raised is not repeated, as it may have a password
in it; at most QUESTIONS_MAX are answered at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from access.asked import Asked
from access.identity import ANONYMOUS, Identity
from access.login import Login
from actors.plugin.frames import Allowed, Answer, Denied, Failed
from actors.plugin.port import Plugin, Verdict
from mqtt.reason import ReasonCode

QUESTIONS_MAX: Final = 10_000

log = structlog.get_logger(__name__)


class Answering:
    def __init__(self) -> None:
        self.plugins: Sequence[Plugin] = ()
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, question: Login | Asked, told: Callable[[Answer], None]) -> None:
        if len(self._tasks) >= QUESTIONS_MAX:
            told(Failed.FULL)
            return
        task = asyncio.get_running_loop().create_task(self._answer(question, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: Login | Asked, told: Callable[[Answer], None]) -> None:
        try:
            found = await (self._login(question) if isinstance(question, Login) else self._may(question))
        except Exception as error:  # code of others
            log.warning("plugin.failed", cause=type(error).__name__)
            found = Failed.RAISED
        told(found)

    async def _login(self, login: Login) -> Answer:
        for plugin in self.plugins:
            verdict = await plugin.login(login)
            if verdict is not None:
                return _checked(verdict, login)
        return Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD)

    async def _may(self, asked: Asked) -> Answer:
        for plugin in self.plugins:
            found = await plugin.may(asked)
            if found is not None:
                return found is True
        return False


def _checked(verdict: Verdict, login: Login) -> Answer:
    """Anything but True is a no."""
    if verdict.allow is not True:
        return Denied(ReasonCode(verdict.code))
    user = verdict.user or login.user or ""
    if not user:
        return Allowed(ANONYMOUS.pack())
    return Allowed(Identity(user, "plugin", tuple(verdict.groups), tuple(verdict.attributes), tuple(verdict.grants)).pack())
