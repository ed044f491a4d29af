"""What one connection may do: the rules of one version that may fit it, asked by topic and by filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol
from weakref import WeakSet

from access.decide import Bound, decide, decide_filter, said, says_of_filter
from access.placeholders import Values
from access.rights import Extent, Right
from access.rules_file import Rule
from mqtt.topics import has_wildcard
from mqtt.trie import FilterTrie

# Of one set; emptied when full, which costs each live topic one more decision.
TOPICS_MAX: Final = 1_000
# Of all sets of one version together.
ALL_TOPICS_MAX: Final = 200_000
# Longer names are decided each time, so that a bound in count is one in bytes too.
TOPIC_BYTES_MAX: Final = 256
# From this many rules on, looking up which of them name a topic costs less than asking each.
FOUND_FROM: Final = 32
_FOUND_COST_MAX: Final = 10_000
_SHARED: Final = Right.SHARE | Right.SUBSCRIBE


class Profile(Protocol):
    """Never says yes where the rules of its version say no; what was found allowed is kept in sets that the hot paths read."""

    @property
    def publishable(self) -> set[bytes]:
        """Topics found allowed for PUBLISH; filled by `may`."""

    @property
    def readable(self) -> set[bytes]:
        """Topics found allowed for SUBSCRIBE; filled by `may`."""

    def may(self, right: Right, topic: bytes) -> bool:
        """Whether all of these rights are there on this topic name."""

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        """How much of what this filter matches the right covers.  The filter is without `$share`."""


class Shelf:
    """The sets of all profiles of one version: bounded together, and emptied together."""

    def __init__(self, topics_max: int = ALL_TOPICS_MAX) -> None:
        self._profiles: WeakSet[RuledProfile] = WeakSet()
        self._topics_max = topics_max
        self._put = 0

    def add(self, profile: RuledProfile) -> None:
        self._profiles.add(profile)

    def put(self, topics: set[bytes], topic: bytes) -> None:
        if len(topic) > TOPIC_BYTES_MAX:
            return
        if len(topics) >= TOPICS_MAX:
            topics.clear()
        # Those of profiles that are gone count too: nobody has to say goodbye, and the sets never hold more than was put into them.
        if self._put >= self._topics_max:
            for profile in self._profiles:
                profile.forget()
            self._put = 0
        topics.add(topic)
        self._put += 1


class Fitting:
    """The rules that fit somebody, in order; shared by all whom the same ones fit."""

    __slots__ = ("__weakref__", "_denying", "_found", "_same", "names", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.names = sorted({name for rule in rules for name in rule.names})
        self._same = [None if rule.names else rule.bind({}) for rule in rules]
        self._denying = [position for position, rule in enumerate(rules) if not rule.allow]
        self._found: FilterTrie[int] | None = None

    def bind(self, position: int, values: Values) -> Bound:
        """One without placeholders is the same for all."""
        return self._same[position] or self.rules[position].bind(values)

    def naming(self, topic: bytes) -> Sequence[int]:
        """The positions of all that may name this topic, whatever is filled in, in order."""
        if len(self.rules) < FOUND_FROM:
            return range(len(self.rules))
        return sorted({*self._trie().match(topic)})

    def touching(self, topic_filter: bytes) -> Sequence[int]:
        """The positions of all that may have a say about this filter, in order: those that cover it, and those that deny parts of it."""
        if len(self.rules) < FOUND_FROM or not has_wildcard(topic_filter):
            return self.naming(topic_filter)
        # What covers a filter matches its levels as those of a topic. What only touches it is not found that way.
        return sorted({*self._trie().match(topic_filter), *self._denying})

    def _trie(self) -> FilterTrie[int]:
        if self._found is None:
            self._found = FilterTrie(_FOUND_COST_MAX)
            for position, rule in enumerate(self.rules):
                for template in rule.topics:
                    self._found.add(template.widest(), position)
        return self._found


class RuledProfile:
    """A profile by rules.  Shared by all connections whom the same rules fit with the same values and grants.

    A rule is filled in when the first question comes that it may have a say about: most connections never ask for most rules.
    """

    __slots__ = ("__weakref__", "_allowed", "_bound", "_fitting", "_grants", "_shelf", "_values", "leaves_some", "publishable", "readable")

    def __init__(self, fitting: Fitting, values: Values, grants: tuple[Bound, ...], shelf: Shelf, *, leaves_some: bool = False) -> None:
        self.leaves_some = leaves_some
        """What rules and grants say nothing about is left to a plugin; here it is a no all the same."""
        self._fitting = fitting
        self._values = values
        self._grants = grants
        self._shelf = shelf
        self._bound: dict[int, Bound] = {}
        self.publishable: set[bytes] = set()
        self.readable: set[bytes] = set()
        self._allowed = {int(Right.PUBLISH): self.publishable, int(Right.SUBSCRIBE): self.readable}
        shelf.add(self)

    def may(self, right: Right, topic: bytes) -> bool:
        allowed = self._allowed.get(int(right))
        if allowed is not None and topic in allowed:
            return True
        if not decide(self._rules(self._fitting.naming(topic)), right, topic):
            return False
        self._shelf.put(self._allowed.setdefault(int(right), set()) if allowed is None else allowed, topic)
        return True

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        return decide_filter(self._rules(self._fitting.touching(topic_filter)), right, topic_filter)

    def leaves(self, right: Right, topic: bytes) -> bool:
        """Whether it is a plugin's to say, because nothing else says yes or no."""
        return self.leaves_some and said(self._rules(self._fitting.naming(topic)), right, topic) is None

    def leaves_filter(self, topic_filter: bytes, right: Right = Right.SUBSCRIBE) -> bool:
        """The same, for SUBSCRIBE."""
        rules = self._rules(self._fitting.touching(topic_filter))
        return self.leaves_some and not says_of_filter(rules, right, topic_filter)

    def leaves_shared(self, topic_filter: bytes) -> bool:
        """The same, for a shared subscription to this filter: not where they deny a part of it, which would be lost to its group."""
        rules = self._rules(self._fitting.touching(topic_filter))
        if not self.leaves_some or decide_filter(rules, _SHARED, topic_filter) is Extent.ALL:
            return False
        rules.append(Bound(True, int(_SHARED), (tuple(topic_filter.split(b"/")),)))
        return decide_filter(rules, _SHARED, topic_filter) is Extent.ALL

    def forget(self) -> None:
        """What was found: it is decided again."""
        for topics in self._allowed.values():
            topics.clear()

    def _rules(self, positions: Sequence[int]) -> list[Bound]:
        """Those at these positions, and the grants behind them."""
        bound = self._bound
        rules: list[Bound] = []
        for position in positions:
            rule = bound.get(position)
            if rule is None:
                rule = bound[position] = self._fitting.bind(position, self._values)
            rules.append(rule)
        rules += self._grants
        return rules


def left_to_plugin(profile: Profile, right: Right, topic: bytes) -> bool:
    """Whether a plugin has the word about this topic name."""
    return isinstance(profile, RuledProfile) and profile.leaves(right, topic)
