"""The rules of one version, with a file and without."""

from __future__ import annotations

import pytest

from access.identity import ANONYMOUS, Grant, Identity
from access.rights import Extent, Right
from access.rules import CLOSED, LATER_FROM, OPEN, Access, compile_access
from access.rules_file import parse_rules


def test_without_rules_there_is_no_profile() -> None:
    """Nobody is asked, so nothing is slower than it was."""
    assert OPEN.profile(ANONYMOUS, b"c", "tcp", "127.0.0.1") is None


@pytest.mark.parametrize("right", Right)
def test_closed_rules_allow_nothing(right: Right) -> None:
    """No topic, no filter, and nothing that a hot path would find allowed."""
    profile = CLOSED.profile(ANONYMOUS, b"c", "tcp", "127.0.0.1")
    assert profile is not None
    assert not profile.may(right, b"t") and profile.grant(right, b"#") is Extent.NONE
    assert profile.publishable == profile.readable == set()


TOKEN = Grant(Right.SUBSCRIBE | Right.REPLAY, (b"a/#",))
JWT = Identity("u", "jwt", grants=(TOKEN,))


def reads(access: Access, who: Identity, topic: bytes = b"a/b") -> bool:
    profile = access.profile(who, b"c", "tcp", "10.0.0.1")
    return profile is None or profile.may(Right.SUBSCRIBE, topic)


@pytest.mark.parametrize("who", [Identity("pipeline/p", "pipeline", grants=(TOKEN,)), Identity("u", "plugin", grants=(TOKEN,))])
def test_who_has_grants_has_what_they_say_where_there_are_no_rules(who: Identity) -> None:
    """A token for one site must not open the others because nobody wrote rules."""
    assert reads(OPEN, who) and not reads(OPEN, who, b"b")
    assert not reads(OPEN, Identity("pipeline/p", "pipeline")), "a token of the reader for nothing is for nothing"


@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("rules", [None, "version = 1"])
@pytest.mark.parametrize("decides", [True, False])
def test_without_rules_claims_and_a_plugin_everybody_may_do_everything(claims: bool, rules: str | None, decides: bool) -> None:
    """With any of them nobody may do what none of them allows."""
    access = compile_access(3, None if rules is None else parse_rules(rules), claims=claims, decides=decides)
    is_open = rules is None and not claims and not decides
    assert access.version == 3
    assert reads(access, ANONYMOUS) == reads(access, Identity("u", "password")) == is_open
    assert reads(access, JWT) == (claims or is_open), "the claim of a token counts while it is named, and no longer"


def test_grants_stand_behind_the_rules() -> None:
    """They allow what no rule has denied, and cannot take anything away."""
    text = 'version = 1\n[[rule]]\ndeny = ["subscribe"]\ntopics = ["a/no/#"]\n[[rule]]\nallow = ["subscribe"]\ntopics = ["b"]'
    access = compile_access(1, parse_rules(text), claims=True, decides=False)
    assert [reads(access, JWT, topic) for topic in (b"a/b", b"a/no/b", b"b", b"c")] == [True, False, True, False]
    assert [reads(access, ANONYMOUS, topic) for topic in (b"a/b", b"b")] == [False, True]
    profile = access.profile(JWT, b"c", "tcp", "10.0.0.1")
    assert profile is not None and profile.grant(Right.SUBSCRIBE, b"a/#") is Extent.SOME


def test_of_many_rules_about_one_user_each_everybody_gets_his_own() -> None:
    """His topic, and nobody else's."""
    rules = parse_rules(
        "version = 1\n" + "".join([f'[[rule]]\nallow=["publish"]\ntopics=["t/{n}"]\nusers=["u{n}"]\n' for n in range(1_000)])
    )
    access = compile_access(1, rules, claims=False, decides=False)
    for number in range(0, 1_000, 111):
        profile = access.profile(Identity(f"u{number}", "password"), b"c", "tcp", "10.0.0.1")
        assert profile is not None and profile.may(Right.PUBLISH, b"t/%d" % number) and not profile.may(Right.PUBLISH, b"t/1")


def test_of_many_rules_about_everybody_nobody_is_looked_for_before_he_asks() -> None:
    """Then he has what he has with few; a change of the rules brings all connections of a gateway in one turn."""
    looked: list[str] = []

    class Noted(str):
        """Text of a user's name that says when somebody compares it."""

        def startswith(self, *_: object) -> bool:
            looked.append(self)
            return super().startswith("u")

    about = "[[rule]]\ndeny = ['publish']\ntopics = ['no/#']\nusers = ['u*']\n"
    few, many = (
        compile_access(
            1, parse_rules(f"version = 1\n{about * times}[[rule]]\nallow = ['all']\ntopics = ['#']\n"), claims=False, decides=False
        )
        for times in (1, LATER_FROM)
    )
    assert few.weight == 2 and many.weight == LATER_FROM + 1
    eager, later = (access.profile(Identity(Noted("u1"), "password"), b"c", "tcp", "10.0.0.1") for access in (few, many))
    assert eager is not None and later is not None and len(looked) == 1
    for topic in (b"no/1", b"yes"):
        assert eager.may(Right.PUBLISH, topic) == later.may(Right.PUBLISH, topic) == (topic == b"yes")
    for topic_filter in (b"no/#", b"#"):
        assert eager.grant(Right.PUBLISH, topic_filter) is later.grant(Right.PUBLISH, topic_filter)
    assert eager.publishable == later.publishable == {b"yes"} and len(looked) == 1 + LATER_FROM
