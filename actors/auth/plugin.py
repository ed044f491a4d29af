"""What a plugin is asked, and what its answers come to: who somebody is, and whether he may.  Whatever is no answer is a no."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from access.asked import Asked
from access.identity import ANONYMOUS, Identity
from actors.auth.asked import Answers, Question
from actors.auth.questions import NoAnswer, PluginQuestions, Unanswered
from actors.auth.settings import PluginSettings
from actors.plugin.frames import Allowed, Answer, Denied
from gateway.events import RightTold
from mqtt.reason import ReasonCode

CODES: Final = frozenset(
    {
        ReasonCode.UNSPECIFIED_ERROR,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.BANNED,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
    }
)
"""What a plugin may refuse with; any other is 0x86."""


class PluginLogins:
    def __init__(self, answers: Answers, questions: PluginQuestions) -> None:
        self._answers = answers
        self._questions = questions

    def ask(self, question: Question) -> None:
        self._questions.ask(question.login, partial(self._heard, question))

    def _heard(self, question: Question, answer: Answer | Unanswered) -> None:
        match answer:
            case Allowed(packed):
                try:
                    identity = _prefixed(Identity.unpack(packed), self._questions.settings)
                except ValueError as error:
                    raise NoAnswer(str(error)) from None
                self._answers.accept(question, identity)
            case Denied(code):
                wanted = ReasonCode(code) if code in CODES else ReasonCode.BAD_USER_NAME_OR_PASSWORD
                self._answers.refuse(question, wanted, "the plugin says no")
            case Unanswered(cause, busy):
                self._answers.refuse(question, ReasonCode.SERVER_BUSY if busy else _nobody(question), cause)


class PluginRights:
    """told: takes each answer.  Who raises has said no."""

    def __init__(self, questions: PluginQuestions, told: Callable[[RightTold], None]) -> None:
        self._questions = questions
        self._told = told

    def ask(self, asker: int, key: tuple[int, bytes], asked: Asked) -> None:
        self._questions.ask(asked, partial(self._heard, asker, key))

    def _heard(self, asker: int, key: tuple[int, bytes], answer: Answer | Unanswered) -> None:
        self._told(RightTold(asker, key, answer is True, not isinstance(answer, Unanswered)))


def _nobody(question: Question) -> ReasonCode:
    """Nobody has said whether it is right.  Who shows nothing is told what a listener that takes none of them says: whoever looks by
    such a CONNECT whether a gateway is at work (actors.probe) finds that it is."""
    shows = question.login.user is not None or question.login.password is not None
    return ReasonCode.SERVER_UNAVAILABLE if shows else ReasonCode.NOT_AUTHORIZED


def _prefixed(identity: Identity, settings: PluginSettings | None) -> Identity:
    """The anonymous one has no name, and so no prefix.  Raises ValueError: it may be too large with it."""
    if identity == ANONYMOUS or settings is None:
        return identity
    found = Identity(settings.user_prefix + identity.user, "plugin", identity.groups, identity.attributes, identity.grants)
    found.pack()
    return found
