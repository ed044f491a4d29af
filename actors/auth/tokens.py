"""Tokens that come as a password.  A token of a key that nobody knows waits for a newer set, if one may be fetched."""

from __future__ import annotations

from access.tokens import Token, TokenError, UnknownKey, read_token
from actors.auth.asked import Answers, Clock, Question
from actors.auth.keys import KeySource
from actors.auth.settings import TokenSettings
from mqtt.reason import ReasonCode


class Tokens:
    def __init__(self, answers: Answers, clock: Clock, source: KeySource) -> None:
        self._answers = answers
        self._clock = clock
        self._source = source
        self.settings: TokenSettings | None = None

    def ask(self, question: Question) -> None:
        self._look(question, again=False)

    def _look(self, question: Question, *, again: bool) -> None:
        """again: after a fetch, so there is no other to wait for."""
        if not self._answers.waits(question):
            return
        keys, settings, password = self._source.keys(), self.settings, question.login.password
        if keys is None or settings is None:
            if again or not self._source.when_newer(lambda: self._look(question, again=True)):
                self._answers.refuse(question, ReasonCode.SERVER_UNAVAILABLE, "there are no keys to check a token with")
            return
        try:
            token = read_token(password or b"", keys, settings.options, self._clock.wall_s())
        except UnknownKey as error:
            if again or not self._source.when_newer(lambda: self._look(question, again=True)):
                self._refuse(question, str(error))
        except TokenError as error:
            self._refuse(question, str(error))
        else:
            self._read(question, token, settings.options.user_prefix)

    def _read(self, question: Question, token: Token, prefix: str) -> None:
        if question.login.user not in (None, "", token.identity.user.removeprefix(prefix)):
            self._refuse(question, "another user name than that of the token")
            return
        # Not 0: the identity counts for a moment, however short.
        ends_in_ms = max(1, int((token.ends_s - self._clock.wall_s()) * 1000))
        self._answers.accept(question, token.identity, ends_in_ms=ends_in_ms)

    def _refuse(self, question: Question, cause: str) -> None:
        self._answers.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, cause)
