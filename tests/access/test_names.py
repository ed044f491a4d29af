"""Names that somebody chose in order to be taken for somebody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from access.identity import Identity
from access.profile import Profile
from access.rights import Extent, Right
from access.rules import Ruled, compile_access
from access.rules_file import parse_rules
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_name
from tests.access.names import COUNT, HOSTILE_NAMES, VICTIM

OWN: Final[dict[str, Callable[[str], tuple[Identity, bytes]]]] = {
    "client_id": lambda name: (Identity("u", "password"), name.encode()),
    "user": lambda name: (Identity(name, "password"), b"c"),
    "attr.site": lambda name: (Identity("u", "jwt", attributes=(("site", name),)), b"c"),
}


def _access(rules: str) -> Ruled:
    return compile_access(1, parse_rules(f"version = 1\n{rules}"), claims=False, decides=False)


def _profiles(access: Ruled, kind: str) -> list[Profile]:
    found = []
    for name in HOSTILE_NAMES:
        who, client = OWN[kind](name)
        profile = access.profile(who, client, "tcp", "10.0.0.1")
        assert profile is not None
        found.append(profile)
    return found


def test_there_are_as_many_names_as_others_count_on() -> None:
    """No two are the same, all have a form in UTF-8."""
    assert len(HOSTILE_NAMES) == len({name.encode() for name in HOSTILE_NAMES}) == COUNT
    assert VICTIM in HOSTILE_NAMES


@pytest.mark.parametrize("kind", OWN)
def test_nobody_gets_what_belongs_to_the_honest_one(kind: str) -> None:
    """Not his topics, not a filter with them in it, whatever the name is; and the honest one gets his."""
    access = _access(f'[[rule]]\nallow = ["all"]\ntopics = ["meters/${{{kind}}}/#", "by/x-${{{kind}}}"]')
    topics = [b"meters/meter-7", b"meters/meter-7/temp", b"by/x-meter-7"]
    filters = [b"meters/meter-7/#", b"meters/#", b"meters/+/temp", b"#", b"by/+", b"meters/meter-7/+"]
    for name, profile in zip(HOSTILE_NAMES, _profiles(access, kind), strict=True):
        assert [profile.may(Right.PUBLISH, topic) for topic in topics] == [name == VICTIM] * 3, name
        extents = {profile.grant(Right.SUBSCRIBE, each) for each in filters}
        assert extents == ({Extent.NONE, Extent.ALL} if name == VICTIM else {Extent.NONE}), name


@pytest.mark.parametrize("kind", OWN)
def test_what_is_one_name_s_is_no_other_name_s(kind: str) -> None:
    """Each with each: of every topic that somebody could hope to be given, at most one of them gets it."""
    access = _access(f'[[rule]]\nallow = ["publish"]\ntopics = ["meters/${{{kind}}}/t"]')
    profiles = _profiles(access, kind)
    owners: dict[bytes, str] = {}
    hoped = [f"meters/{form}/t".encode() for name in HOSTILE_NAMES for form in (name, _percent(name))]
    for topic in [topic for topic in dict.fromkeys(hoped) if _is_topic(topic)]:
        for name, profile in zip(HOSTILE_NAMES, profiles, strict=True):
            if profile.may(Right.PUBLISH, topic):
                assert owners.setdefault(topic, name) == name, topic
    # Too long ones and the empty one have none; everybody else has one.
    assert set(owners.values()) == {name for name in HOSTILE_NAMES if 0 < len(name.encode()) <= 1024}


@pytest.mark.parametrize("kind", OWN)
def test_nobody_escapes_from_what_is_denied(kind: str) -> None:
    """A rule that denies by a name denies that name, and where the name is of no use, everybody's level."""
    access = _access(f'[[rule]]\ndeny = ["all"]\ntopics = ["bad/${{{kind}}}/#"]\n[[rule]]\nallow = ["all"]\ntopics = ["#"]')
    for name, profile in zip(HOSTILE_NAMES, _profiles(access, kind), strict=True):
        own = f"bad/{_percent(name)}/t".encode() if 0 < len(name.encode()) <= 1024 else b"bad/anything/t"
        assert not profile.may(Right.PUBLISH, own) and profile.may(Right.PUBLISH, b"good/t"), name
        assert profile.grant(Right.SUBSCRIBE, b"#") is Extent.SOME


@pytest.mark.parametrize("key", ["users", "groups", "client_ids"])
def test_a_rule_about_the_honest_one_is_about_nobody_else(key: str) -> None:
    """Whole names are compared whole: no pattern, no case, no form of Unicode in between."""
    access = _access(f'[[rule]]\nallow = ["all"]\ntopics = ["t"]\n{key} = ["{VICTIM}"]')
    for name in HOSTILE_NAMES:
        who = Identity(name if key == "users" else "u", "password", (name,) if key == "groups" else ())
        profile = access.profile(who, name.encode() if key == "client_ids" else b"c", "tcp", "10.0.0.1")
        assert profile is not None and profile.may(Right.PUBLISH, b"t") == (name == VICTIM), name


def _percent(name: str) -> str:
    """The form of a name in a topic, made one character at a time."""
    made = []
    for place, char in enumerate(name):
        is_meant = char in "/+#%" or ord(char) < 32 or 127 <= ord(char) < 160 or (char == "$" and place == 0)
        made.append("".join([f"%{byte:02X}" for byte in char.encode()]) if is_meant else char)
    return "".join(made)


def _is_topic(topic: bytes) -> bool:
    try:
        check_topic_name(topic)
    except ProtocolError:
        return False
    return True
