"""What a token brings along: `{"pub": [filters], "sub": [filters], "all": [filters]}`.

Grants stand behind the rules of the file: they allow what no rule has denied.
"""

from __future__ import annotations

from typing import Final

from access.decide import Bound
from access.identity import Grant
from access.rules_file import FILTERS_MAX, PUBLISHING, READING
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter, is_shared

_WORDS: Final = {"pub": PUBLISHING, "sub": READING, "all": PUBLISHING | READING}


class GrantsError(ValueError):
    """One sentence: what was found and what was wanted."""


def read_grants(claim: object) -> tuple[Grant, ...]:
    """Raises GrantsError: a token of which a part is not understood allows nothing."""
    if not isinstance(claim, dict):
        raise GrantsError(f"grants are {type(claim).__name__}, wanted is a table with {', '.join(_WORDS)}")
    grants = []
    for word, filters in claim.items():
        if word not in _WORDS:
            raise GrantsError(f"unknown key {repr(word)[:64]} in grants, known are {', '.join(_WORDS)}")
        if not isinstance(filters, list) or len(filters) > FILTERS_MAX:
            found = f"{len(filters)} filters" if isinstance(filters, list) else type(filters).__name__
            raise GrantsError(f"`{word}` of grants is {found}, wanted is a list of at most {FILTERS_MAX} topic filters")
        if filters:
            grants.append(Grant(_WORDS[word], tuple([_filter(word, each) for each in filters])))
    return tuple(grants)


def bound_grants(grants: tuple[Grant, ...]) -> tuple[Bound, ...]:
    """As rules that allow; what is no topic filter allows nothing."""
    return tuple(
        [Bound(True, int(grant.rights), tuple([tuple(each.split(b"/")) for each in grant.filters if _is_filter(each)])) for grant in grants]
    )


def _filter(word: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise GrantsError(f"{type(text).__name__} in `{word}` of grants, wanted are texts")
    if "${" in text:
        raise GrantsError(f"{text[:64]!r} in `{word}` of grants: placeholders are for rules, whoever makes a token knows whom it is for")
    try:
        found = check_topic_filter(text)
    except ProtocolError as error:
        raise GrantsError(f"{text[:64]!r} in `{word}` of grants: {error.detail}") from None
    if is_shared(found):
        raise GrantsError(f"{text[:64]!r} in `{word}` of grants: a shared subscription, wanted is the filter behind its share name")
    return found


def _is_filter(topic_filter: bytes) -> bool:
    try:
        check_topic_filter(topic_filter)
    except ProtocolError:
        return False
    return True
