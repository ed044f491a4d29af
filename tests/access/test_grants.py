"""What a token brings along."""

from __future__ import annotations

import pytest

from access.decide import Bound
from access.grants import GrantsError, bound_grants, read_grants
from access.identity import Grant
from access.rights import Right

PUBLISHING = Right.PUBLISH | Right.RETAIN | Right.DELAY
READING = Right.SUBSCRIBE | Right.SHARE | Right.REPLAY


def test_grants_of_a_claim() -> None:
    """The words mean what they mean in rules; an empty list grants nothing, and so does an empty table."""
    claim = {"pub": ["a/+"], "sub": ["b/#", "c"], "all": []}
    assert read_grants(claim) == (Grant(PUBLISHING, (b"a/+",)), Grant(READING, (b"b/#", b"c")))
    assert read_grants({"all": ["d"]}) == (Grant(Right(63), (b"d",)),) and read_grants({}) == ()


@pytest.mark.parametrize(
    ("claim", "story"),
    [
        (None, "grants are NoneType, wanted is a table with pub, sub, all"),
        (["a"], "grants are list"),
        ("a", "grants are str"),
        ({"publish": ["a"]}, "unknown key 'publish' in grants, known are pub, sub, all"),
        ({"pub": ["a"], 1: ["b"]}, "unknown key 1 in grants"),
        ({"pub": "a"}, "`pub` of grants is str, wanted is a list of at most 64 topic filters"),
        ({"pub": ["a"] * 65}, "`pub` of grants is 65 filters, wanted is a list of at most 64"),
        ({"pub": [b"a"]}, "bytes in `pub` of grants, wanted are texts"),
        ({"sub": ["a", None]}, "NoneType in `sub` of grants"),
        ({"sub": [""]}, "'' in `sub` of grants: topic filter is empty"),
        ({"sub": ["#/a"]}, "'#/a' in `sub` of grants: # is not the whole last level"),
        ({"sub": ["\ud800"]}, r"'\\ud800' in `sub` of grants: topic: surrogate"),
        ({"sub": ["$share/g/a"]}, "a shared subscription, wanted is the filter behind its share name"),
        ({"all": ["u/${user}/#"]}, "placeholders are for rules"),
    ],
)
def test_a_claim_of_which_a_part_is_not_understood_is_refused(claim: object, story: str) -> None:
    """With one sentence; the token opens nothing then."""
    with pytest.raises(GrantsError, match=story):
        read_grants(claim)


def test_grants_become_rules_that_allow() -> None:
    """Bytes of a row that are no topic filter allow nothing: a # in the middle would be everything behind it."""
    grants = (Grant(Right.PUBLISH, (b"a/#", b"", b"#/a", b"a+", b"\xff", b"b")), Grant(Right.REPLAY, ()))
    assert bound_grants(grants) == (Bound(True, 1, ((b"a", b"#"), (b"b",))), Bound(True, 32, ()))
