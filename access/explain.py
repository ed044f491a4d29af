"""Which rule decided, for people who ask why: the same walk over the rules as access.decide, one answer at a time and slowly.

Numbers of rules begin at 1, as in the sentences about a file of rules. Grants stand behind the rules and are not looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from access.decide import Bound, decide, decide_filter
from access.identity import Identity
from access.placeholders import values_of
from access.rights import Extent, Right
from access.rules_file import Rule
from access.subjects import caller


@dataclass(frozen=True, slots=True)
class Explained:
    """extent: of a topic name ALL or NONE.  rule: that decided; None: no rule did, so the answer is no.  guards: rules before it that deny
    parts of a filter."""

    extent: Extent
    rule: int | None
    guards: tuple[int, ...] = ()


def explain(
    rules: Sequence[Rule], who: Identity, client: bytes, listener: str, address: str, right: Right, topic: bytes, *, is_filter: bool
) -> Explained:
    """right: a single one.  topic: a filter of a subscription, without `$share`, or the name of a topic."""
    asks, values = caller(who, client, listener, address), values_of(who, client)
    bound = [(number, rule.bind(values)) for number, rule in enumerate(rules, 1) if rule.fits(asks)]
    if not is_filter:
        for number, each in bound:
            if _names(each, right, topic):
                return Explained(Extent.ALL if each.allow else Extent.NONE, number)
        return Explained(Extent.NONE, None)
    guards: list[int] = []
    for number, each in bound:
        # Alone a rule that allows says what it covers; one that denies says it by what it leaves of everything.
        if each.allow:
            if decide_filter([each], right, topic) is Extent.ALL:
                return Explained(Extent.SOME if guards else Extent.ALL, number, tuple(guards))
            continue
        left = decide_filter([each, _everything(right, topic)], right, topic)
        if left is Extent.NONE:
            return Explained(Extent.NONE, number)
        if left is Extent.SOME:
            guards.append(number)
    return Explained(Extent.NONE, None)


def _names(rule: Bound, right: Right, topic: bytes) -> bool:
    allowing = Bound(True, rule.rights, rule.filters)
    return decide([allowing], right, topic)


def _everything(right: Right, topic_filter: bytes) -> Bound:
    return Bound(True, int(right), (tuple(topic_filter.split(b"/")),))
