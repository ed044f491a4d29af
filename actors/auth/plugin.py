"""Questions to the plugin's process (actors.plugin.server), which may be late, away, or say nothing that makes sense: all of that is a no.

A frame carries all questions of a turn.  Always holds: a question has an answer within the deadline; queue_max wait for one at most; after
five in a row that failed none is asked for 10 s, with an alarm.  A plugin that is away fails at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from access.identity import ANONYMOUS, Identity
from access.login import Login
from actors.auth.asked import Answers, Clock, Question, Timer
from actors.auth.breaker import OPEN_S, Breaker
from actors.auth.settings import PluginSettings
from actors.links import Link
from actors.plugin.frames import Allowed, Answer, Ask, Denied, Invalidate, Told, decode, encode
from actors.plugin.port import Asked
from mqtt.reason import ReasonCode

ALARM: Final = "plugin"
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

log = structlog.get_logger(__name__)


class Wire(Protocol):
    """The link to the plugin's process (actors.links.LinkClient)."""

    def send(self, data: bytes) -> None: ...


class PluginLogins:
    """Also the owner of the link: it hears when that is up, and what comes over it."""

    def __init__(self, answers: Answers, clock: Clock, alarm: Callable[[str, str], None]) -> None:
        self.wire: Wire | None = None
        """Set once, before anything is asked."""
        self.settings: PluginSettings | None = None
        self._answers = answers
        self._clock = clock
        self._alarm = alarm
        self._breaker = Breaker()
        self._alarmed = False
        self._linked = False
        self._numbers = 0
        self._asked: OrderedDict[int, tuple[Question, float]] = OrderedDict()
        """By number, with the time by which the answer has to be there; the oldest first."""
        self._turn: list[tuple[int, Login | Asked]] = []
        self._timer: Timer | None = None

    def ask(self, question: Question) -> None:
        settings, now_s = self.settings, self._clock.now_s()
        if settings is None or not self._linked:
            self._no(question, "the plugin is away")
        elif len(self._asked) >= settings.queue_max:
            self._refuse(question, ReasonCode.SERVER_BUSY, f"{len(self._asked)} questions wait for the plugin")
        elif not self._breaker.allows(now_s):
            self._no(question, "the plugin has failed too often")
        else:
            self._numbers += 1
            self._asked[self._numbers] = question, now_s + settings.deadline_s
            self._turn.append((self._numbers, question.login))
            if len(self._turn) == 1:
                self._clock.later(0, self._send)
            self._watch()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------ LinkOwner

    def link_up(self, link: Link) -> None:
        self._linked = True

    def link_frame(self, link: Link, data: bytes) -> None:
        try:
            frame = decode(data)
        except ValueError as error:
            link.close(str(error))
            return
        match frame:
            case Told(answers):
                for number, answer in answers:
                    self._told(number, answer)
            case Invalidate():
                pass  # Nothing that it has said is kept.
            case Ask():
                link.close("questions found where answers are wanted")

    def link_down(self, link: Link) -> None:
        self._linked = False
        for number in list(self._asked):
            self._failed(number, "the plugin has ended")

    # ------------------------------------------------------------------ within

    def _send(self) -> None:
        turn, self._turn = self._turn, []
        # Those that failed meanwhile went with the link.
        still = tuple([(number, question) for number, question in turn if number in self._asked])
        if still and self.wire is not None:
            self.wire.send(encode(Ask(still)))

    def _told(self, number: int, answer: Answer) -> None:
        if number not in self._asked:
            return  # Too late.
        match answer:
            case Allowed(packed):
                try:
                    identity = _prefixed(Identity.unpack(packed), self.settings)
                except ValueError as error:
                    self._failed(number, str(error))
                    return
                self._answers.accept(self._answered(number), identity)
            case Denied(code):
                wanted = ReasonCode(code) if code in CODES else ReasonCode.BAD_USER_NAME_OR_PASSWORD
                self._refuse(self._answered(number), wanted, "the plugin says no")
            case _:
                self._failed(number, f"the plugin answers {answer!r}")

    def _answered(self, number: int) -> Question:
        question, _ = self._asked.pop(number)
        self._breaker.succeeded()
        if self._alarmed:
            self._alarmed = False
            self._alarm(ALARM, "")
        return question

    def _failed(self, number: int, cause: str) -> None:
        question, _ = self._asked.pop(number)
        self._breaker.failed(self._clock.now_s())
        if self._breaker.is_open and not self._alarmed:
            self._alarmed = True
            log.error("plugin.given_up", cause=cause, for_s=OPEN_S)
            self._alarm(ALARM, f"the plugin has failed too often, and is asked again once in {OPEN_S:.0f} s: {cause}")
        self._no(question, cause)

    def _no(self, question: Question, cause: str) -> None:
        """Nobody has said whether it is right.  Who shows nothing is told what a listener that takes none of them says: whoever looks by
        such a CONNECT whether a gateway is at work (actors.probe) finds that it is."""
        shows = question.login.user is not None or question.login.password is not None
        self._refuse(question, ReasonCode.SERVER_UNAVAILABLE if shows else ReasonCode.NOT_AUTHORIZED, cause)

    def _refuse(self, question: Question, code: ReasonCode, cause: str) -> None:
        self._answers.refuse(question, code, cause)

    def _watch(self) -> None:
        """One timer, for the question that was asked first."""
        if self._timer is None and self._asked:
            _, until_s = next(iter(self._asked.values()))
            self._timer = self._clock.later(max(0.0, until_s - self._clock.now_s()), self._late)

    def _late(self) -> None:
        self._timer = None
        now_s = self._clock.now_s()
        while self._asked:
            number, (_, until_s) = next(iter(self._asked.items()))
            # A deadline that was made shorter counts for those asked from then on.
            if until_s > now_s:
                break
            self._failed(number, "the plugin is late")
        self._watch()


def _prefixed(identity: Identity, settings: PluginSettings | None) -> Identity:
    """The anonymous one has no name, and so no prefix.  Raises ValueError: it may be too large with it."""
    if identity == ANONYMOUS or settings is None:
        return identity
    found = Identity(settings.user_prefix + identity.user, "plugin", identity.groups, identity.attributes, identity.grants)
    found.pack()
    return found
