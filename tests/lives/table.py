"""The table of lives: every way one client can come, go, and come again, as a product of dimensions without the impossible.

A life has three connections.  The first one makes a session, lets it hold something, and ends in one of the ways there are;
the second comes during that end or after a while, perhaps through another gateway or in another version; the third only asks
whether the second one's session is still there.  Once, during the first connection or behind it, somebody else may come with the
client id, under another name.  What must be observed is the oracle's, how it is played the player's.

The dimensions are in DIMENSIONS, in the order in which a life is put together.  What cannot be is removed by the functions in
RULES, each of which is named after its reason and takes the dimensions it speaks of.  `full` is the whole product; a few
dimensions that do not act upon the others (DRAWN) are drawn at random there instead of multiplied.  `pairs` is a small part
of it in which every two values that can meet do meet.  Times are seconds and short, so that a real broker can live through them too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from itertools import combinations
from operator import attrgetter
from random import Random
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.broker.wire import Version

MARGIN_S = 1.0
"""Nothing is asked of a broker closer than this to the moment at which the answer changes."""
NEVER_S = 0xFFFFFFFF
NOTICED_WITHIN_S = 23.5
"""So long after its gateway was killed a connection may count as open: a home waits 20 s for a gateway to be heard again."""
HEARD_BEFORE_S = 2.5
"""And so long before, since it ended for the home when the gateway was last heard, which it is every 2 s at least."""


class _Value(Enum):
    """Compared far oftener than shown: by identity, which an Enum's own hash, of its name, is ten times slower than."""

    __hash__ = object.__hash__


class Kind(_Value):
    """Where a session lives that outlives its connection.  The specification knows no difference."""

    DURABLE = "durable"
    MEMORY = "memory"


class Expiry(_Value):
    """Session expiry as a client says it.  KEPT is that of 3.1.1 without clean session: the broker's own, longer than any life."""

    NONE = 0
    SHORT = 5
    LONG = 12
    NEVER = NEVER_S
    KEPT = 604_800


class Before(_Value):
    """What there was before the first connection: an offline session has a subscription, to a topic of its own."""

    NOTHING = "new"
    OFFLINE = "known"


class Holds(_Value):
    """What the session holds when its first connection ends."""

    NOTHING = "nothing"
    SUBSCRIPTION = "a subscription"
    MISSED = "messages that came while it was away"
    UNACKED = "QoS 1 without PUBACK"
    UNRECEIVED = "QoS 2 without PUBREC"
    UNCOMPLETED = "QoS 2 after PUBREC"
    INCOMING = "its own QoS 2 message without PUBREL"
    ALL = "one of each"
    BACKLOG = "a backlog that is being replayed"


class Ending(_Value):
    """How the first connection ends."""

    DISCONNECT = "DISCONNECT"
    DISCONNECT_ZERO = "DISCONNECT with expiry 0"
    DISCONNECT_SHORTER = "DISCONNECT with a shorter expiry"
    DISCONNECT_LONGER = "DISCONNECT with a longer expiry"
    DISCONNECT_NEVER = "DISCONNECT with no expiry at all"
    DISCONNECT_REFUSED = "DISCONNECT with an expiry after none"
    WITH_WILL = "DISCONNECT with will"
    WITH_WILL_ZERO = "DISCONNECT with will and expiry 0"
    WITH_WILL_SHORTER = "DISCONNECT with will and a shorter expiry"
    WITH_WILL_LONGER = "DISCONNECT with will and a longer expiry"
    CLOSED = "socket closed"
    KEEP_ALIVE = "keep alive lost"
    PROTOCOL_ERROR = "protocol error"
    TAKEN_OVER = "taken over"
    REPLAYING = "taken over while replaying"
    DISCONNECTING = "taken over while disconnecting"
    DISCONNECTING_WILL = "taken over while disconnecting with will"
    DISCONNECTING_ZERO = "taken over while disconnecting with expiry 0"
    KILLED = "gateway killed"


class Will(_Value):
    """The will of the first connection, by its delay.  LONGER is longer than any expiry that ends."""

    NONE = -1
    AT_ONCE = 0
    SHORTER = 2
    LONGER = 25


class When(_Value):
    """When the second connection comes, after the end of the first."""

    DURING = "during it"
    AT_ONCE = "at once"
    BEFORE_WILL = "before the will"
    AFTER_WILL = "after the will"
    BEFORE_EXPIRY = "before expiry"
    AFTER_EXPIRY = "after expiry"


class Stranger(_Value):
    """When somebody else, with another name, comes once with the client id."""

    NOBODY = "nobody else"
    THERE = "a stranger while it is there"
    AWAY = "a stranger while it is away"
    EXPIRED = "a stranger when its session is over"


class Third(_Value):
    """When the third connection comes, after the end of the second: before or after a short expiry has passed."""

    EARLY = "early"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Life:
    kind: Kind
    version: Version
    clean: bool
    expiry: Expiry
    ending: Ending
    holds: Holds
    will: Will
    will_qos: int
    will_retain: bool
    before: Before
    second_version: Version
    second_clean: bool
    second_expiry: Expiry
    when: When
    elsewhere: bool
    """The second connection comes through another gateway."""
    third: Third
    stranger: Stranger
    stranger_version: Version
    stranger_clean: bool

    @property
    def name(self) -> str:
        """Readable, and the same in every run."""
        will = "no will" if self.will is Will.NONE else f"will {self.will.value}s q{self.will_qos}{' retained' if self.will_retain else ''}"
        first = f"{self.kind.value} {self.before.value} v{self.version} {'clean' if self.clean else 'resume'} {_shown(self.expiry)}"
        second = f"v{self.second_version} {'clean' if self.second_clean else 'resume'} {_shown(self.second_expiry)}"
        place = "elsewhere" if self.elsewhere else "same gateway"
        visit = f"{self.stranger.value}, v{self.stranger_version} {'clean' if self.stranger_clean else 'resume'}"
        end = f"{self.ending.value} / {second}, {self.when.value}, {place} / {self.third.value} / {visit}"
        return f"{first}, {will}, {self.holds.value} / {end}"


def _shown(expiry: Expiry) -> str:
    return expiry.name.lower() if expiry.value in (NEVER_S, Expiry.KEPT.value) else f"{expiry.value}s"


# -------------------------------------------------------------------- what a value means

TAKEOVERS = {Ending.TAKEN_OVER, Ending.REPLAYING, Ending.DISCONNECTING, Ending.DISCONNECTING_WILL, Ending.DISCONNECTING_ZERO}
DISCONNECTING = {Ending.DISCONNECTING, Ending.DISCONNECTING_WILL, Ending.DISCONNECTING_ZERO}
WITH_WILL = {Ending.WITH_WILL, Ending.WITH_WILL_ZERO, Ending.WITH_WILL_SHORTER, Ending.WITH_WILL_LONGER, Ending.DISCONNECTING_WILL}
_OF_3_1_1 = {
    *(Ending.DISCONNECT, Ending.CLOSED, Ending.KEEP_ALIVE, Ending.PROTOCOL_ERROR, Ending.TAKEN_OVER, Ending.REPLAYING),
    *(Ending.DISCONNECTING, Ending.KILLED),
}
_SHORTER = {Expiry.SHORT: 3, Expiry.LONG: 5, Expiry.NEVER: 5}
_LONGER = {Expiry.SHORT: 12, Expiry.LONG: 20}
_SAYS_SHORTER = {Ending.DISCONNECT_SHORTER, Ending.WITH_WILL_SHORTER}
_SAYS_LONGER = {Ending.DISCONNECT_LONGER, Ending.WITH_WILL_LONGER}
_SAYS_ZERO = {Ending.DISCONNECT_ZERO, Ending.WITH_WILL_ZERO, Ending.DISCONNECTING_ZERO}


def said_s(expiry: Expiry, ending: Ending) -> int | None:
    """The Session Expiry Interval in the DISCONNECT; None: it has none, or there is no DISCONNECT."""
    if ending in _SAYS_ZERO:
        return 0
    if ending in _SAYS_SHORTER:
        return _SHORTER.get(expiry)
    if ending in _SAYS_LONGER:
        return _LONGER.get(expiry)
    if ending is Ending.DISCONNECT_NEVER:
        return NEVER_S
    return Expiry.SHORT.value if ending is Ending.DISCONNECT_REFUSED else None


def kept_s(expiry: Expiry, ending: Ending) -> int:
    """How long the session outlives its first connection, if the end comes about as it is meant to."""
    said = None if ending is Ending.DISCONNECT_REFUSED else said_s(expiry, ending)
    return expiry.value if said is None else said


def gap_s(expiry: Expiry, ending: Ending, will: Will, when: When) -> float:
    """From the end of the first connection to the second CONNECT; of a killed gateway, from the kill."""
    kept = kept_s(expiry, ending)
    killed = ending is Ending.KILLED
    if when is When.DURING:
        return 0.0
    if when is When.AT_ONCE:
        return 0.1
    if when is When.BEFORE_WILL:
        return will.value - MARGIN_S
    if when is When.AFTER_WILL:
        return will.value + 1.5 * MARGIN_S
    if when is When.BEFORE_EXPIRY:
        long = NOTICED_WITHIN_S + Will.SHORTER.value + 2 * MARGIN_S if killed else 8.0
        return kept - MARGIN_S if kept < Expiry.KEPT.value else long
    return (max(NOTICED_WITHIN_S, kept) if killed else kept) + 1.5 * MARGIN_S


def third_gap_s(second_expiry: Expiry, third: Third) -> float:
    """From the end of the second connection to the third CONNECT."""
    if third is Third.LATE:
        return Expiry.SHORT.value + 1.5 * MARGIN_S
    return 0.2 if second_expiry is Expiry.NONE else second_expiry.value - MARGIN_S


def visit_s(expiry: Expiry, ending: Ending, stranger: Stranger) -> float:
    """From the end of the first connection to the stranger's CONNECT."""
    over_s = max(kept_s(expiry, ending), NOTICED_WITHIN_S if ending is Ending.KILLED else 0)
    return 0.3 if stranger is Stranger.AWAY else over_s + 2 * MARGIN_S


# -------------------------------------------------------------------- what cannot be

Codes: TypeAlias = NDArray[np.int64]
Rule = Callable[..., bool]
"""Whether these values cannot meet.  The names of its parameters are those of the dimensions."""


def _expiry_and_version_do_not_match(version: Version, clean: bool, expiry: Expiry) -> bool:
    if version == 5:
        return expiry is Expiry.KEPT
    return expiry is not (Expiry.NONE if clean else Expiry.KEPT)


def a_client_of_3_1_1_has_no_expiry_of_its_own(version: Version, clean: bool, expiry: Expiry) -> bool:
    return _expiry_and_version_do_not_match(version, clean, expiry)


def nor_has_the_second_one(second_version: Version, second_clean: bool, second_expiry: Expiry) -> bool:
    return _expiry_and_version_do_not_match(second_version, second_clean, second_expiry)


def a_disconnect_of_3_1_1_says_nothing(version: Version, ending: Ending) -> bool:
    return version == 4 and ending not in _OF_3_1_1


def a_new_expiry_is_another_one(expiry: Expiry, ending: Ending) -> bool:
    if ending in _SAYS_SHORTER:
        return expiry not in _SHORTER
    if ending in _SAYS_LONGER:
        return expiry not in _LONGER
    if ending is Ending.DISCONNECT_NEVER:
        return expiry not in (Expiry.SHORT, Expiry.LONG)
    return ending in (Ending.WITH_WILL_ZERO, Ending.DISCONNECTING_ZERO) and expiry is Expiry.NONE


def only_who_has_no_expiry_is_refused_one(expiry: Expiry, ending: Ending) -> bool:
    return ending is Ending.DISCONNECT_REFUSED and expiry is not Expiry.NONE


def only_a_resumed_session_has_a_backlog(before: Before, clean: bool, ending: Ending) -> bool:
    return ending is Ending.REPLAYING and (clean or before is Before.NOTHING)


def a_backlog_is_what_is_replayed(ending: Ending, holds: Holds) -> bool:
    return (ending is Ending.REPLAYING) is not (holds is Holds.BACKLOG)


def who_is_taken_over_misses_nothing(ending: Ending, holds: Holds) -> bool:
    return ending in TAKEOVERS and holds is Holds.MISSED


def a_will_of_3_1_1_has_no_delay(version: Version, will: Will) -> bool:
    return version == 4 and will.value > 0


def a_delay_is_shorter_or_longer_than_something(expiry: Expiry, ending: Ending, will: Will) -> bool:
    kept = kept_s(expiry, ending)
    return (will is Will.SHORTER and kept <= will.value) or (will is Will.LONGER and kept >= will.value)


def no_will_has_no_qos(will: Will, will_qos: int) -> bool:
    return will is Will.NONE and will_qos > 0


def nor_is_it_retained(will: Will, will_retain: bool) -> bool:
    return will is Will.NONE and will_retain


def a_takeover_comes_during_the_life(ending: Ending, when: When) -> bool:
    return (ending in TAKEOVERS) is not (when is When.DURING)


def before_and_after_a_will_need_one_that_waits(will: Will, when: When) -> bool:
    return when in (When.BEFORE_WILL, When.AFTER_WILL) and will is not Will.SHORTER


def what_has_no_expiry_is_not_waited_for(expiry: Expiry, ending: Ending, when: When) -> bool:
    kept = kept_s(expiry, ending)
    return (when is When.BEFORE_EXPIRY and kept == 0) or (when is When.AFTER_EXPIRY and not 0 < kept < Expiry.KEPT.value)


def moments_too_close_cannot_be_told_apart(expiry: Expiry, ending: Ending, will: Will, when: When) -> bool:
    kept = kept_s(expiry, ending)
    if when is When.AFTER_WILL:
        return gap_s(expiry, ending, will, when) + MARGIN_S > kept
    return when is When.BEFORE_EXPIRY and will is Will.SHORTER and gap_s(expiry, ending, will, when) < will.value + MARGIN_S


def a_killed_gateway_is_noticed_late(expiry: Expiry, ending: Ending, when: When) -> bool:
    """What happens within the 20 s is not asked: the specification counts from the end, and nobody knows it yet."""
    if ending is not Ending.KILLED:
        return False
    return when in (When.BEFORE_WILL, When.AFTER_WILL) or (when is When.BEFORE_EXPIRY and kept_s(expiry, ending) < Expiry.KEPT.value)


def the_third_comes_when_it_tells_something(second_expiry: Expiry, third: Third) -> bool:
    if second_expiry is Expiry.SHORT:
        return False
    return third is (Third.LATE if second_expiry is Expiry.NONE else Third.EARLY)


def nobody_has_no_version(stranger: Stranger, stranger_version: Version) -> bool:
    return stranger is Stranger.NOBODY and stranger_version == 4


def nor_a_way_to_begin(stranger: Stranger, stranger_clean: bool) -> bool:
    return stranger is Stranger.NOBODY and not stranger_clean


def nobody_comes_while_time_counts(ending: Ending, stranger: Stranger) -> bool:
    return stranger is Stranger.THERE and ending in (Ending.KEEP_ALIVE, Ending.REPLAYING)


def who_is_away_is_away_for_a_while(expiry: Expiry, ending: Ending, when: When, stranger: Stranger) -> bool:
    # A gateway that was killed may count as there, and without a session there is nothing to be late for.
    long = when in (When.AFTER_WILL, When.BEFORE_EXPIRY, When.AFTER_EXPIRY) or (when is When.AT_ONCE and not kept_s(expiry, ending))
    return stranger is Stranger.AWAY and (ending is Ending.KILLED or not long)


def a_session_is_over_when_that_was_waited_for(when: When, stranger: Stranger) -> bool:
    return stranger is Stranger.EXPIRED and when is not When.AFTER_EXPIRY


RULES: tuple[Rule, ...] = (
    a_client_of_3_1_1_has_no_expiry_of_its_own,
    nor_has_the_second_one,
    a_disconnect_of_3_1_1_says_nothing,
    a_new_expiry_is_another_one,
    only_who_has_no_expiry_is_refused_one,
    only_a_resumed_session_has_a_backlog,
    a_backlog_is_what_is_replayed,
    who_is_taken_over_misses_nothing,
    a_will_of_3_1_1_has_no_delay,
    a_delay_is_shorter_or_longer_than_something,
    no_will_has_no_qos,
    nor_is_it_retained,
    a_takeover_comes_during_the_life,
    before_and_after_a_will_need_one_that_waits,
    what_has_no_expiry_is_not_waited_for,
    moments_too_close_cannot_be_told_apart,
    a_killed_gateway_is_noticed_late,
    the_third_comes_when_it_tells_something,
    nobody_has_no_version,
    nor_a_way_to_begin,
    nobody_comes_while_time_counts,
    who_is_away_is_away_for_a_while,
    a_session_is_over_when_that_was_waited_for,
)

DIMENSIONS: dict[str, tuple[Any, ...]] = {
    "kind": tuple(Kind),
    "version": (4, 5),
    "clean": (True, False),
    "expiry": tuple(Expiry),
    "ending": tuple(Ending),
    "holds": tuple(Holds),
    "will": tuple(Will),
    "will_qos": (0, 1, 2),
    "will_retain": (False, True),
    "before": tuple(Before),
    "second_version": (4, 5),
    "second_clean": (True, False),
    "second_expiry": tuple(Expiry),
    "when": tuple(When),
    "elsewhere": (False, True),
    "third": tuple(Third),
    "stranger": tuple(Stranger),
    "stranger_version": (4, 5),
    "stranger_clean": (True, False),
}

DRAWN = ("will_qos", "will_retain", "before", "elsewhere", "third", "stranger", "stranger_version", "stranger_clean")
"""Drawn in the full product, not multiplied; but a takeover is multiplied by where it comes from."""

assert tuple(DIMENSIONS) == tuple(each.name for each in fields(Life))
_PARAMETERS = {rule: tuple(inspect.signature(rule).parameters) for rule in RULES}


def _rules_of(dimension: str) -> list[tuple[Rule, tuple[str, ...]]]:
    """The rules that can be asked when this dimension has been added, and not before."""
    names = list(DIMENSIONS)
    known = set(names[: names.index(dimension) + 1])
    return [(rule, wanted) for rule, wanted in _PARAMETERS.items() if dimension in wanted and set(wanted) <= known]


@cache
def full() -> tuple[Life, ...]:
    """The whole table, in the same order every time; made once in a process."""
    names, rng = list(DIMENSIONS), Random(0)
    rules = {name: _rules_of(name) for name in names}

    def grow(row: dict[str, Any], at: int) -> Iterator[Life]:
        if at == len(names):
            yield Life(**row)
            return
        name = names[at]
        possible = []
        for value in DIMENSIONS[name]:
            row[name] = value
            if not any(rule(*[row[each] for each in wanted]) for rule, wanted in rules[name]):
                possible.append(value)
        if name in DRAWN and not (name == "elsewhere" and row["ending"] in TAKEOVERS):
            possible = [possible[int(rng.random() * len(possible))]] if possible else []
        for value in possible:
            row[name] = value
            yield from grow(row, at + 1)

    return tuple(grow({}, 0))


def broken_rules(life: Life) -> list[str]:
    """By name; a life of the table breaks none."""
    return [rule.__name__ for rule, wanted in _PARAMETERS.items() if rule(*[getattr(life, name) for name in wanted])]


def coded(lives: Sequence[Life]) -> Codes:
    """A row for each life, a column for each dimension: which of its values."""
    places = [{value: place for place, value in enumerate(values)} for values in DIMENSIONS.values()]
    read = attrgetter(*DIMENSIONS)
    return np.array([[place[value] for place, value in zip(places, read(life), strict=True)] for life in lives], dtype=np.int64)


def pairs_of(codes: Codes) -> Iterator[Codes]:
    """For every two dimensions, which pair of values each life has."""
    for a, b in combinations(range(codes.shape[1]), 2):
        yield codes[:, a] * 100 + codes[:, b]


@cache
def pairs(seed: int = 0) -> tuple[Life, ...]:
    """A part of the table in which all pairs of values meet that meet anywhere in it: those lives in which, going through the
    table in a random order, a pair is met for the first time."""
    order = list(full())
    Random(seed).shuffle(order)
    firsts = [np.unique(found, return_index=True)[1] for found in pairs_of(coded(order))]
    return tuple([order[at] for at in sorted({int(at) for found in firsts for at in found})])


def sample(count: int, seed: int = 0) -> list[Life]:
    """A stratified part: every ending has its share, and within it those lives come first that bring new pairs."""
    by_ending: dict[Ending, list[Life]] = {ending: [] for ending in Ending}
    for life in pairs(seed):
        by_ending[life.ending].append(life)
    rng = Random(seed)
    for lives in by_ending.values():
        rng.shuffle(lives)
    chosen: list[Life] = []
    while len(chosen) < count and any(by_ending.values()):
        for lives in by_ending.values():
            if lives and len(chosen) < count:
                chosen.append(lives.pop())
    return chosen
