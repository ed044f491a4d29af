"""The desk of a gateway: answers who somebody is, by the way that what he shows decides (access.ways).

Leaves to others what a connection may do before and after, and how long it waits (gateway.authenticating), and what is right (access).
Always holds:
1. a question has at most one answer, and one that was forgotten has none;
2. nothing that takes longer than a millisecond is done on the loop;
3. no password, token, proof or key is in a log or a cause.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol, TypeAlias

import structlog

from access.identity import ANONYMOUS, Identity, check_name
from access.login import Login
from access.passwords import Users
from access.ways import Refused, Way, Ways, way_of
from actors.auth.asked import Clock, Question, Workers
from actors.auth.exchanges import Exchanges
from actors.auth.gate import Gate
from actors.auth.keys import KeySource
from actors.auth.passwords import Passwords
from actors.auth.plugin import PluginLogins, PluginRights
from actors.auth.questions import PluginQuestions
from actors.auth.remembered import Remembered
from actors.auth.settings import AuthSettings
from actors.auth.slowing import Slowing
from actors.auth.tokens import Tokens
from actors.auth.users import UserFile, revoked
from actors.auth.written import shown
from actors.sparing import Sparing
from gateway.events import AuthChallenged, Authenticated, AuthRefused, IdentitiesRevoked, RightsForgotten, RightTold
from mqtt.reason import ReasonCode

Verdict: TypeAlias = Authenticated | AuthChallenged | AuthRefused | IdentitiesRevoked | RightTold | RightsForgotten
_KEY_BYTES = 32

log = structlog.get_logger(__name__)


class DeskOwner(Protocol):
    def verdict(self, event: Verdict) -> None:
        """On the loop; may be within a call of the desk."""

    def alarm(self, kind: str, cause: str) -> None:
        """No cause: it is over."""


class Desk:
    """secret: of the data directory.  checkers: threads for passwords; fetchers: for files and sets of keys, which may take long."""

    def __init__(self, owner: DeskOwner, clock: Clock, checkers: Workers, fetchers: Workers, secret: bytes, settings: AuthSettings) -> None:
        self._owner = owner
        self._clock = clock
        self._settings = settings
        self._questions: dict[int, Question] = {}
        gate = Gate(self, clock, Slowing(secrets.token_bytes(_KEY_BYTES)))
        remembered = Remembered(secrets.token_bytes(_KEY_BYTES))
        self._passwords = Passwords(self, clock, checkers, gate, remembered, settings.passwords)
        self._exchanges = Exchanges(self, gate, self._passwords, secret)
        self._source = KeySource(clock, fetchers, owner.alarm)
        self._tokens = Tokens(self, clock, self._source)
        self._file = UserFile(fetchers, self._users_changed)
        self.plugin = PluginQuestions(clock, owner.alarm, lambda: owner.verdict(RightsForgotten()))
        """Whoever has the link to the plugin's process is its wire, and tells it what comes."""
        self.rights = PluginRights(self.plugin, owner.verdict)
        self._logins = PluginLogins(self, self.plugin)
        self._refusals = Sparing("client.refused")
        self._take(settings)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Called when the password file of the settings was read, or could not be."""
        self._file.when_read(call)

    def stop(self) -> None:
        self._source.stop()
        self.plugin.stop()

    # ------------------------------------------------------------------ the core

    def ask(self, socket: int, attempt: int, login: Login) -> None:
        self.forget(socket)
        question = self._questions[socket] = Question(socket, attempt, login, self._clock.now_s() + self._settings.deadline_s)
        match way_of(login, self._ways):
            case Refused(code, cause):
                self.refuse(question, code, cause)
            case Way.SCRAM:
                self._exchanges.ask(question)
            case Way.CERTIFICATE:
                self._by_certificate(question)
            case Way.TOKEN:
                self._tokens.ask(question)
            case Way.PASSWORD:
                self._passwords.ask(question)
            case Way.PLUGIN:
                self._logins.ask(question)
            case Way.ANONYMOUS:
                self.accept(question, ANONYMOUS)

    def go_on(self, socket: int, attempt: int, data: bytes) -> None:
        question = self._questions.get(socket)
        if question is None or question.attempt != attempt:
            return
        question.until_s = self._clock.now_s() + self._settings.deadline_s
        if not self._exchanges.go_on(question, data):
            self.refuse(question, ReasonCode.PROTOCOL_ERROR, "nothing to go on with")

    def forget(self, socket: int) -> None:
        question = self._questions.pop(socket, None)
        if question is not None:
            self._passwords.forget(question)
            self._exchanges.forget(question)

    def changed(self, settings: AuthSettings) -> None:
        before, self._settings = self._settings, settings
        if settings.passwords.user_prefix != before.passwords.user_prefix:
            self._revoke(_names(self._passwords.users), before.passwords.user_prefix)
        self._take(settings)

    # ------------------------------------------------------------------ Answers

    def waits(self, question: Question) -> bool:
        return self._questions.get(question.socket) is question

    def accept(self, question: Question, identity: Identity, data: bytes | None = None, ends_in_ms: int | None = None) -> None:
        if not self.waits(question):
            return
        try:
            check_name(identity.user) if identity != ANONYMOUS else None
        except ValueError as error:
            self.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, str(error))
            return
        self.forget(question.socket)
        self._owner.verdict(Authenticated(question.socket, question.attempt, identity, data, ends_in_ms))

    def challenge(self, question: Question, data: bytes) -> None:
        if self.waits(question):
            self._owner.verdict(AuthChallenged(question.socket, question.attempt, data))

    def refuse(self, question: Question, code: ReasonCode, cause: str) -> None:
        if not self.waits(question):
            return
        self.forget(question.socket)
        login = question.login
        self._refusals.info(
            int(self._clock.now_s() * 1_000), client_id=shown(login.client), user=shown(login.user), listener=login.listener,
            address=login.address, code=int(code), cause=cause,
        )  # fmt: skip
        self._owner.verdict(AuthRefused(question.socket, question.attempt, int(code), cause))

    # ------------------------------------------------------------------ within

    def _by_certificate(self, question: Question) -> None:
        login = question.login
        if len(login.names) != 1:
            cause = f"{len(login.names)} names of its kind in the certificate, one is wanted"
            self.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, cause)
        elif login.user not in (None, login.names[0]):
            self.refuse(question, ReasonCode.BAD_USER_NAME_OR_PASSWORD, "another user name than that of the certificate")
        else:
            name = self._settings.certificate_prefix + login.names[0]
            self.accept(question, Identity(name, "certificate", attributes=(("serial", login.serial),)))

    def _take(self, settings: AuthSettings) -> None:
        self._passwords.change(settings.passwords)
        self._exchanges.user_prefix = settings.passwords.user_prefix
        self._tokens.settings = settings.tokens
        self._source.change(settings.tokens)
        self.plugin.settings = settings.plugin
        self._file.want(settings.passwords)
        self._see_ways()

    def _see_ways(self) -> None:
        settings = self._settings
        users = self._passwords.users.passwords if settings.passwords.file else None
        self._ways = Ways(users, settings.tokens is not None, settings.plugin is not None, settings.anonymous)

    def _users_changed(self, users: Users) -> None:
        before, self._passwords.users = self._passwords.users, users
        self._see_ways()
        self._revoke(revoked(before, users), self._settings.passwords.user_prefix)

    def _revoke(self, names: set[str], prefix: str) -> None:
        if names:
            log.info("passwords.revoked", users=len(names))
            self._owner.verdict(IdentitiesRevoked(frozenset([prefix + name for name in names]), frozenset()))


def _names(users: Users) -> set[str]:
    return {*users.passwords, *users.scram}
