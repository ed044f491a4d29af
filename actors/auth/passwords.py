"""Passwords by the entries of the password file.

Checks that cost more than a millisecond go to threads, in turns of the sources they come from; the others are done at once.  Leaves to
others to slow down who is wrong (actors.auth.gate).  What always holds: a password counts by the entry that is in force when it is found
right; a user who is not there costs what one costs who is; a source has at most its part of the queue, and a full queue is a no.
"""

from __future__ import annotations

from functools import partial

import structlog

from access.identity import Identity
from access.passwords import Cost, Users, cost, verify
from actors.auth.asked import Answers, Clock, Question, Workers
from actors.auth.gate import Gate
from actors.auth.remembered import Remembered
from actors.auth.settings import PasswordSettings
from actors.auth.slowing import source
from actors.auth.turns import Turns
from mqtt.reason import ReasonCode

NO_USERS = Users({}, {}, None)
WRONG = "no such user, or another password"

log = structlog.get_logger(__name__)


class Passwords:
    def __init__(
        self, answers: Answers, clock: Clock, workers: Workers, gate: Gate, remembered: Remembered, settings: PasswordSettings
    ) -> None:
        self.users = NO_USERS
        """Those in force."""
        self._answers = answers
        self._clock = clock
        self._workers = workers
        self._gate = gate
        self._remembered = remembered
        self._settings = settings
        self._turns: Turns[Question] = Turns(settings.queue_max)
        self._working = 0

    @property
    def queued(self) -> int:
        return len(self._turns)

    def change(self, settings: PasswordSettings) -> None:
        self._settings = settings
        self._turns.count_max = settings.queue_max
        self._work()

    def ask(self, question: Question) -> None:
        self._gate.enter(question, _user(question), lambda: self._look(question))

    def forget(self, question: Question) -> None:
        self._turns.drop(source(question.login.address), question)

    def _look(self, question: Question) -> None:
        entry = self._entry(_user(question))
        password = question.login.password
        if entry is None or password is None:
            self._wrong(question)
        elif self._remembered.knows(_user(question), password, entry, self._clock.now_s(), self._settings.remember_s):
            self._right(question)
        elif cost(entry) is Cost.CHEAP:
            self._checked(question, entry, _checked(entry, password))
        elif self._turns.put(source(question.login.address), question):
            self._work()
        else:
            self._answers.refuse(question, ReasonCode.SERVER_BUSY, f"{len(self._turns)} passwords wait to be checked")

    def _work(self) -> None:
        while self._working < self._settings.threads:
            question = self._turns.take()
            if question is None:
                return
            entry, password = self._entry(_user(question)), question.login.password
            if not self._answers.waits(question) or entry is None or password is None:
                self._answers.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, WRONG)
                continue
            self._working += 1
            self._workers.run(partial(_checked, entry, password), partial(self._done, question, entry))

    def _done(self, question: Question, entry: str, right: bool | Exception) -> None:
        self._working -= 1
        if self._answers.waits(question):
            self._checked(question, entry, right)
        self._work()

    def _checked(self, question: Question, entry: str, right: bool | Exception) -> None:
        user = _user(question)
        if isinstance(right, Exception):
            log.error("client.not_checked", cause=str(right) or type(right).__name__)
            self._answers.refuse(question, ReasonCode.SERVER_UNAVAILABLE, "the password could not be checked")
        elif not right:
            self._wrong(question)
        elif self.users.passwords.get(user) != entry:
            # The file was changed meanwhile.  Somebody asks with the new password, or was thrown out with the old one.
            self._look(question)
        else:
            self._remembered.right(user, question.login.password or b"", entry, self._clock.now_s())
            self._right(question)

    def _entry(self, user: str) -> str | None:
        return self.users.passwords.get(user, self.users.absent)

    def _right(self, question: Question) -> None:
        name = self._settings.user_prefix + _user(question)
        self._answers.accept(question, Identity(name, "password"))

    def _wrong(self, question: Question) -> None:
        self._gate.wrong(question, _user(question))
        self._answers.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, WRONG)


def _checked(entry: str, password: bytes) -> bool:
    return verify(entry, password)


def _user(question: Question) -> str:
    assert question.login.user is not None
    return question.login.user
