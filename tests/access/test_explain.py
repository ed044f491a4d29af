"""Which rule decided: never another answer than the one that counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from access.explain import Explained, explain
from access.identity import ANONYMOUS, Identity
from access.rights import Extent, Right
from access.rules import compile_access
from access.rules_file import Rule, parse_rules

RULES = """\
version = 1
[[rule]]
deny = ["subscribe"]
topics = ["secret/#"]
unless = { groups = ["chiefs"] }
[[rule]]
allow = ["publish"]
topics = ["own/${user}/#"]
users = ["ann", "bob"]
[[rule]]
allow = ["all"]
topics = ["#"]
networks = ["10.0.0.0/8"]
"""
ANN, CHIEF = Identity("ann", "password"), Identity("carl", "jwt", groups=("chiefs",))


def asked(who: Identity, right: Right, topic: bytes, address: str = "", *, is_filter: bool = False) -> Explained:
    return explain(parse_rules(RULES), who, b"c", "tcp", address, right, topic, is_filter=is_filter)


def test_the_rule_that_decides_is_named() -> None:
    """By its number in the file, whoever the others are about."""
    assert asked(ANN, Right.PUBLISH, b"own/ann/x") == Explained(Extent.ALL, 2)
    assert asked(ANN, Right.PUBLISH, b"own/bob/x") == Explained(Extent.NONE, None)
    assert asked(ANN, Right.PUBLISH, b"own/bob/x", "10.1.1.1") == Explained(Extent.ALL, 3)
    assert asked(ANONYMOUS, Right.SUBSCRIBE, b"secret/x", "10.1.1.1", is_filter=True) == Explained(Extent.NONE, 1)
    assert asked(ANONYMOUS, Right.SUBSCRIBE, b"#", "10.1.1.1", is_filter=True) == Explained(Extent.SOME, 3, (1,))
    assert asked(CHIEF, Right.SUBSCRIBE, b"#", "10.1.1.1", is_filter=True) == Explained(Extent.ALL, 3)
    assert asked(CHIEF, Right.SUBSCRIBE, b"#", "11.1.1.1", is_filter=True) == Explained(Extent.NONE, None)


TOPICS = ["a", "a/b", "b", "a/ann", "ann"]
FILTERS = [*TOPICS, "#", "+", "a/#", "+/b", "a/+"]
WORDS = ["publish", "subscribe", "all", "retain", "delay", "share", "replay"]


@st.composite
def some_rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    text = "version = 1\n"
    for _ in range(draw(st.integers(0, 6))):
        verb, word = draw(st.sampled_from(["allow", "deny"])), draw(st.sampled_from(WORDS))
        topics = draw(st.lists(st.sampled_from([*FILTERS, "a/${user}", "${client_id}"]), min_size=1, max_size=2))
        who = draw(st.sampled_from(["", 'users = ["ann"]', 'users = ["b*"]', 'networks = ["10.0.0.0/8"]', 'how = ["jwt"]']))
        text += f'[[rule]]\n{verb} = ["{word}"]\ntopics = {topics}\n{who}\n'.replace("'", '"')
    return parse_rules(text)


@settings(max_examples=300)
@given(
    some_rules(),
    st.sampled_from([ANN, ANONYMOUS, Identity("bob", "jwt")]),
    st.sampled_from(["", "10.1.1.1", "11.1.1.1"]),
    st.sampled_from(list(Right)),
    st.data(),
)
def test_what_is_explained_is_what_is_decided(
    rules: tuple[Rule, ...], who: Identity, address: str, right: Right, data: st.DataObject
) -> None:
    """For topics and for filters."""
    profile = compile_access(1, rules, claims=False, decides=False).profile(who, b"ann", "tcp", address)
    assert profile is not None
    topic, topic_filter = data.draw(st.sampled_from(TOPICS)).encode(), data.draw(st.sampled_from(FILTERS)).encode()
    found = explain(rules, who, b"ann", "tcp", address, right, topic, is_filter=False)
    assert (found.extent is Extent.ALL) == profile.may(right, topic)
    found = explain(rules, who, b"ann", "tcp", address, right, topic_filter, is_filter=True)
    assert found.extent is profile.grant(right, topic_filter)
    assert found.rule is None or rules[found.rule - 1].allow == (found.extent is not Extent.NONE)
