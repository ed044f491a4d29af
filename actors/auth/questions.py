"""Questions to the plugin's process (actors.plugin.server), which may be late, away, or say nothing that makes sense: that is no answer.

A frame carries all questions of a turn.  Always holds: within the deadline whoever asks hears an answer, or why there is none; queue_max
questions of each kind wait at most; after five in a row that failed none is asked for 10 s, with an alarm.  A plugin that is away fails
at once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import structlog

from access.asked import Asked
from access.login import Login
from actors.auth.asked import Clock, Timer
from actors.auth.breaker import OPEN_S, Breaker
from actors.auth.settings import PluginSettings
from actors.links import Link
from actors.plugin.frames import Allowed, Answer, Ask, Failed, Invalidate, Told, decode, encode

ALARM: Final = "plugin"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """busy: too many wait already."""

    cause: str
    busy: bool = False


class NoAnswer(Exception):
    """What came makes no sense; one sentence."""


Heard: TypeAlias = Callable[[Answer | Unanswered], None]
"""Called once.  Raises NoAnswer for an answer that is none, and is called again then, as somebody who has none."""


class Wire(Protocol):
    """The link to the plugin's process (actors.links.LinkClient)."""

    def send(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    kind: type[Login | Asked]
    heard: Heard
    until_s: float


class PluginQuestions:
    """Also the owner of the link: it hears when that is up, and what comes over it."""

    def __init__(self, clock: Clock, alarm: Callable[[str, str], None], invalidated: Callable[[], None]) -> None:
        """invalidated: what was answered before counts no more."""
        self.wire: Wire | None = None
        """Set once, before anything is asked."""
        self.settings: PluginSettings | None = None
        self._clock = clock
        self._alarm = alarm
        self._invalidated = invalidated
        self._breaker = Breaker()
        self._alarmed = False
        self._linked = False
        self._numbers = 0
        self._asked: OrderedDict[int, _Waiting] = OrderedDict()
        """By number; the oldest first."""
        self._waiting: Counter[type[Login | Asked]] = Counter()
        self._turn: list[tuple[int, Login | Asked]] = []
        self._timer: Timer | None = None

    def ask(self, question: Login | Asked, heard: Heard) -> None:
        """heard may be called within this call."""
        settings, now_s, kind = self.settings, self._clock.now_s(), type(question)
        if settings is None or not self._linked:
            heard(Unanswered("the plugin is away"))
        elif self._waiting[kind] >= settings.queue_max:
            heard(Unanswered(f"{self._waiting[kind]} questions wait for the plugin", busy=True))
        elif not self._breaker.allows(now_s):
            heard(Unanswered("the plugin has failed too often"))
        else:
            self._numbers += 1
            self._asked[self._numbers] = _Waiting(kind, heard, now_s + settings.deadline_s)
            self._waiting[kind] += 1
            self._turn.append((self._numbers, question))
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
                self._invalidated()
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
        waiting = self._asked.get(number)
        if waiting is None:
            return  # Too late.
        if answer is Failed.RAISED and waiting.kind is Asked:
            answer = False  # One client's topic that a plugin cannot bear must not open the breaker for all.
        if isinstance(answer, Failed) or isinstance(answer, bool) is (waiting.kind is Login):
            self._failed(number, f"the plugin answers {_shown(answer)}")
            return
        try:
            waiting.heard(answer)
        except NoAnswer as error:
            self._failed(number, str(error))
            return
        self._over(number)
        self._breaker.succeeded()
        if self._alarmed:
            self._alarmed = False
            self._alarm(ALARM, "")

    def _failed(self, number: int, cause: str) -> None:
        waiting = self._over(number)
        self._breaker.failed(self._clock.now_s())
        if self._breaker.is_open and not self._alarmed:
            self._alarmed = True
            log.error("plugin.given_up", cause=cause, for_s=OPEN_S)
            self._alarm(ALARM, f"the plugin has failed too often, and is asked again once in {OPEN_S:.0f} s: {cause}")
        waiting.heard(Unanswered(cause))

    def _over(self, number: int) -> _Waiting:
        waiting = self._asked.pop(number)
        self._waiting[waiting.kind] -= 1
        return waiting

    def _watch(self) -> None:
        """One timer, for the question that was asked first."""
        if self._timer is None and self._asked:
            until_s = next(iter(self._asked.values())).until_s
            self._timer = self._clock.later(max(0.0, until_s - self._clock.now_s()), self._late)

    def _late(self) -> None:
        self._timer = None
        now_s = self._clock.now_s()
        while self._asked:
            number, waiting = next(iter(self._asked.items()))
            # A deadline that was made shorter counts for those asked from then on.
            if waiting.until_s > now_s:
                break
            self._failed(number, "the plugin is late")
        self._watch()


def _shown(answer: Answer) -> str:
    """Without what an identity has in it."""
    return "with an identity where a word is wanted" if isinstance(answer, Allowed) else repr(answer)
