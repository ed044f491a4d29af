"""May it?  The one place where rules come to a yes or a no, for a topic and for a topic filter.

Rules are in order; the first that names the right and the topic decides, and where none does the answer is no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from access.rights import Extent, Right
from mqtt.cover import covers_levels, intersects_levels
from mqtt.topics import matches_levels


@dataclass(frozen=True, slots=True)
class Bound:
    """A rule that is about the one who asks, with its placeholders filled in.

    filters: valid ones, by levels; `$share` has no meaning in them.
    """

    allow: bool
    rights: int
    filters: tuple[tuple[bytes, ...], ...]


def decide(rules: Sequence[Bound], right: Right, topic: bytes) -> bool:
    """Whether all of these rights are there on this topic name; for no right at all: no."""
    return said(rules, right, topic) is True


def said(rules: Sequence[Bound], right: Right, topic: bytes) -> bool | None:
    """What the rules say; None: nothing, of one of these rights at least, and no of none."""
    levels = topic.split(b"/")
    left = int(right)
    for rule in rules:
        if rule.rights & left and _names(rule, levels):
            if not rule.allow:
                return False
            left &= ~rule.rights
            if not left:
                return True
    return None


def decide_filter(rules: Sequence[Bound], right: Right, topic_filter: bytes) -> Extent:
    """How much of what this filter matches all of these rights cover; for no right at all: nothing.

    ALL: every topic that the filter matches is allowed.  SOME: a rule allows the whole, others before it deny parts of it.  NONE: no rule
    allows the whole, though several together may.
    """
    levels = topic_filter.split(b"/")
    wanted = int(right)
    if wanted and not wanted & (wanted - 1):
        # Of one right, which is what is asked for: to take a Right apart costs more than this.
        return _extent(rules, wanted, levels) or Extent.NONE
    return min([_extent(rules, int(each), levels) or Extent.NONE for each in right], default=Extent.NONE)


def says_of_filter(rules: Sequence[Bound], right: Right, topic_filter: bytes) -> bool:
    """Whether the rules allow or deny the whole of what this filter matches, for this one right."""
    return _extent(rules, int(right), topic_filter.split(b"/")) is not None


def _names(rule: Bound, levels: Sequence[bytes]) -> bool:
    for each in rule.filters:  # noqa: SIM110 - this runs for each rule, and any() takes 1.3 times as long
        if matches_levels(each, levels):
            return True
    return False


def _extent(rules: Sequence[Bound], right: int, levels: Sequence[bytes]) -> Extent | None:
    """None: no rule is about the whole."""
    granted = Extent.ALL
    for rule in rules:
        if not rule.rights & right:
            continue
        if rule.allow:
            if any(covers_levels(each, levels) for each in rule.filters):
                return granted
        elif any(intersects_levels(each, levels) for each in rule.filters):
            if any(covers_levels(each, levels) for each in rule.filters):
                return Extent.NONE
            granted = Extent.SOME
    return None
