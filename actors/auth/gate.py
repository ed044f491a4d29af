"""Between a user name that was given and the look at what goes with it: after wrong ones it takes a while.

Always holds: of a pair of user and address that has to wait, one waits; others, and who would have to wait longer than his answer is
wanted, are told at once to come later.  So a flood of wrong logins is looked at once a wait, whatever its rate.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.auth.asked import Answers, Clock, Question
from actors.auth.slowing import Slowing
from mqtt.reason import ReasonCode


class Gate:
    def __init__(self, answers: Answers, clock: Clock, slowing: Slowing) -> None:
        self._answers = answers
        self._clock = clock
        self._slowing = slowing
        self._waiting: dict[bytes, Question] = {}

    def enter(self, question: Question, user: str, look: Callable[[], None]) -> None:
        """Calls look now, or after a wait, or never: then it was refused."""
        now_s, pair = self._clock.now_s(), self._slowing.pair(user, question.login.address)
        wait_s = self._slowing.wait_s(pair, now_s)
        if not wait_s:
            look()
            return
        before = self._waiting.get(pair)
        if now_s + wait_s > question.until_s or (before is not None and self._answers.waits(before)):
            self._answers.refuse(question, ReasonCode.SERVER_BUSY, f"after wrong ones: {wait_s:.1f} s to wait")
            return
        self._waiting[pair] = question
        self._clock.later(wait_s, lambda: self._waited(question, user, pair, look))

    def waits(self, question: Question, user: str) -> bool:
        """Whether he has to wait."""
        return self._slowing.wait_s(self._slowing.pair(user, question.login.address), self._clock.now_s()) > 0

    def wrong(self, question: Question, user: str) -> None:
        """It was looked at, and was not right."""
        self._slowing.wrong(self._slowing.pair(user, question.login.address), self._clock.now_s())

    def _waited(self, question: Question, user: str, pair: bytes, look: Callable[[], None]) -> None:
        if self._waiting.get(pair) is question:
            del self._waiting[pair]
        if self._answers.waits(question):
            # Another may have been wrong meanwhile.
            self.enter(question, user, look)
