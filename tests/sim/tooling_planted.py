"""Faults of what heals and what moves, planted as those of tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from sessions.core import SessionCore
from sessions.inquiry_frames import PURGE, REWIND
from shards.frames import Place
from tests.sim.planting import Planted


class NobodyLooks(Planted):
    name = "a subscription at the head never asks by itself"

    def session(self, core: SessionCore) -> None:
        self.replace(core._reading._idle, "_ask", lambda _: lambda cursor, before_ms: 0)


class NotAskedAgain(Planted):
    name = "what was not answered is not asked once more"

    def session(self, core: SessionCore) -> None:
        self.replace(core._state, "ask_once_more", lambda _: lambda asker, before_ms: [])


class ClosedAndSent(Planted):
    name = "what a move has closed is sent all the same"

    def session(self, core: SessionCore) -> None:
        def make(moving: Any) -> Any:
            def moved(job: Any, session: Any) -> None:
                queue = list(session.window.queue)
                kept = session.window.unsent, session.window.unsent_bytes, session.window.zeros
                moving(job, session)
                session.window.queue.clear()
                session.window.queue.extend(queue)
                session.window.unsent, session.window.unsent_bytes, session.window.zeros = kept

            return moved

        self.replace(core._moving, "_move", make)


class SkipGoesBack(Planted):
    name = "a skip goes back"

    def session(self, core: SessionCore) -> None:
        moving: Any = core._moving

        def make(place: Any) -> Any:
            def anywhere(job: Any, cursor: Any, to: int) -> None:
                if job.ask.verb == REWIND:
                    place(job, cursor, to)
                else:
                    moving._reading.move(cursor, Place(to))

            return anywhere

        self.replace(moving, "_place", make)


class RewindClosesAll(Planted):
    name = "a rewind closes what does not come again"

    def session(self, core: SessionCore) -> None:
        def make(close: Any) -> Any:
            return lambda session, ask, sub_ids: close(session, ask._replace(verb=PURGE), sub_ids)

        self.replace(core._moving, "_close", make)


ALL: tuple[type[Planted], ...] = (NobodyLooks, NotAskedAgain, ClosedAndSent, SkipGoesBack, RewindClosesAll)
