"""SCRAM-SHA-256 over AUTH packets: one exchange for each connection that is in one.

    ask, with or without the client's first message -> challenge -> go_on: the client's final message -> accept or refuse

What always holds: an exchange ends by one proof, right or wrong; a proof counts by the entry that is in force when it comes; and who
guesses is slowed down as with passwords, whatever number of exchanges were begun before.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from access.identity import Identity
from access.scram import ScramEntry, ScramError, ScramServer
from actors.auth.asked import Answers, Question
from actors.auth.gate import Gate
from actors.auth.passwords import Passwords
from mqtt.reason import ReasonCode

_NONCE_BYTES = 18


@dataclass(slots=True)
class _Exchange:
    """server None: the client's first message has not come.  entry: of the user whom it named; None: there is none."""

    question: Question
    server: ScramServer | None = None
    entry: ScramEntry | None = None


class Exchanges:
    """secret: of the data directory.  The users are those of passwords."""

    def __init__(self, answers: Answers, gate: Gate, passwords: Passwords, secret: bytes) -> None:
        self._answers = answers
        self._gate = gate
        self._passwords = passwords
        self._secret = secret
        self._under_way: dict[int, _Exchange] = {}
        self.user_prefix = ""

    def ask(self, question: Question) -> None:
        exchange = self._under_way[question.socket] = _Exchange(question)
        if question.login.data:
            self._first(exchange, question.login.data)
        else:
            self._answers.challenge(question, b"")

    def go_on(self, question: Question, data: bytes) -> bool:
        """Whether there is an exchange to go on with."""
        exchange = self._under_way.get(question.socket)
        if exchange is None or exchange.question is not question:
            return False
        if exchange.server is None:
            self._first(exchange, data)
        else:
            self._final(exchange, exchange.server, data)
        return True

    def forget(self, question: Question) -> None:
        self._under_way.pop(question.socket, None)

    def _first(self, exchange: _Exchange, data: bytes) -> None:
        question = exchange.question
        server = ScramServer(self._passwords.users.scram, self._secret, secrets.token_urlsafe(_NONCE_BYTES))
        try:
            answer = server.first(data)
        except ScramError as error:
            self._answers.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, str(error))
            return
        if question.login.user not in (None, "", server.claimed):
            self._answers.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, "another user name in SCRAM than in CONNECT")
            return
        exchange.server, exchange.entry = server, self._passwords.users.scram.get(server.claimed)
        self._gate.enter(question, server.claimed, lambda: self._answers.challenge(question, answer))

    def _final(self, exchange: _Exchange, server: ScramServer, data: bytes) -> None:
        question, user = exchange.question, server.claimed
        if self._gate.waits(question, user):
            self._answers.refuse(question, ReasonCode.SERVER_BUSY, "after wrong ones: to be tried later")
            return
        try:
            found, last = server.final(data)
        except ScramError as error:
            self._gate.wrong(question, user)
            self._answers.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, str(error))
            return
        if self._passwords.users.scram.get(found) != exchange.entry:
            self._answers.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the entry was changed meanwhile")
            return
        self._answers.accept(question, Identity(self.user_prefix + found, "scram"), last)
