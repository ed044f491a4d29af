"""Whom a rule is about."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.identity import ANONYMOUS, Identity
from access.rules_file import Rule, parse_rules
from access.subjects import Caller, Names, Register, Subject, caller

ANN = Identity("ann", "password", ("staff", "night"))


def rule(text: str, how: str = "allow") -> Rule:
    (found,) = parse_rules(f'version = 1\n[[rule]]\n{how} = ["all"]\ntopics = ["t"]\n{text}')
    return found


def fits(
    text: str, who: Identity = ANN, client: bytes = b"c-1", listener: str = "tls", address: str = "10.1.2.3", how: str = "allow"
) -> bool:
    return rule(text, how).fits(caller(who, client, listener, address))


@pytest.mark.parametrize("how", ["allow", "deny"])
@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("", True),
        ('users = ["ann"]', True),
        ('users = ["bob", "a*"]', True),
        ('users = ["bob"]', False),
        ('users = ["an"]', False),
        ('users = ["Ann"]', False),
        ('groups = ["day", "night"]', True),
        ('groups = ["sta*"]', True),
        ('groups = ["day"]', False),
        ('client_ids = ["c-*"]', True),
        ('client_ids = ["c-2"]', False),
        ('listeners = ["tcp", "tls"]', True),
        ('listeners = ["tcp"]', False),
        ('networks = ["192.168.0.0/16", "10.0.0.0/8"]', True),
        ('networks = ["192.168.0.0/16", "fd00::/8"]', False),
        ('how = ["jwt", "password"]', True),
        ('how = ["jwt"]', False),
        ('users = ["ann"]\ngroups = ["day"]', False),
        ('users = ["ann"]\ngroups = ["staff"]\nhow = ["password"]\nnetworks = ["10.1.2.3"]', True),
        ('unless = { users = ["ann"] }', False),
        ('unless = { users = ["bob"] }', True),
        ('unless = { users = ["ann"], groups = ["day"] }', True),
        ('unless = { users = ["ann"], groups = ["staff"] }', False),
        ('users = ["a*"]\nunless = { networks = ["10.0.0.0/8"] }', False),
    ],
)
def test_all_that_are_given_have_to_fit_and_one_value_of_each_is_enough(text: str, about: bool, how: str) -> None:
    """`unless` in the same words takes out; where all is known it matters not whether the rule allows or denies."""
    assert fits(text, how=how) is about


def test_the_anonymous_one_is_meant_by_rules_about_everybody() -> None:
    """And by its way in; it has no name and no group."""
    assert fits("", ANONYMOUS) and fits('how = ["anonymous"]', ANONYMOUS)
    assert not fits('users = ["a*"]', ANONYMOUS) and not fits('groups = ["staff"]', ANONYMOUS)
    assert not fits('unless = { how = ["anonymous"] }', ANONYMOUS)


@pytest.mark.parametrize("text", ['listeners = ["tls"]', 'networks = ["10.0.0.0/8"]', 'networks = ["0.0.0.0/0", "::/0"]'])
@pytest.mark.parametrize("address", ["", "unix", "/run/x.sock", "10.1.2", "10.1.2.3:1883"])
def test_doubt_goes_against_the_client(text: str, address: str) -> None:
    """A will that is due has neither listener nor address: a rule about them denies, and allows nothing."""
    listener = "" if "listeners" in text else "tls"
    assert not fits(text, listener=listener, address=address, how="allow")
    assert fits(text, listener=listener, address=address, how="deny")
    unless = f"unless = {{ {text} }}"
    assert not fits(unless, listener=listener, address=address, how="allow")
    assert fits(unless, listener=listener, address=address, how="deny")


def test_an_address_of_ipv4_in_words_of_ipv6_is_one_of_ipv4() -> None:
    """As a socket that takes both names it; others are what they are."""
    assert fits('networks = ["10.0.0.0/8"]', address="::ffff:10.1.2.3")
    assert not fits('networks = ["::/0"]', address="::ffff:10.1.2.3")
    assert fits('networks = ["fe80::/10"]', address="fe80::1%eth0")


NAMES = st.sampled_from(["a", "b", "ab"])
GIVEN = st.one_of(st.none(), st.builds(Names, st.frozensets(NAMES, min_size=1), st.sampled_from([(), ("a",)])))
SUBJECTS = st.builds(Subject, users=GIVEN, groups=GIVEN, client_ids=GIVEN)
CALLERS = st.builds(
    Caller,
    st.builds(Identity, NAMES, st.just("password"), st.lists(NAMES, max_size=2).map(tuple)),
    NAMES,
    st.just("tcp"),
    st.just(ip_network("10.0.0.1").network_address),
)


@given(st.lists(SUBJECTS, max_size=8), CALLERS)
def test_a_register_gives_all_that_fit_in_order(subjects: list[Subject], asks: Caller) -> None:
    """Each once, whatever else it gives."""
    found = Register(subjects).of(asks)
    assert found == sorted(set(found))
    assert {place for place, subject in enumerate(subjects) if subject.fits(asks, doubt=False)} <= set(found)


def test_of_many_that_are_about_one_user_each_a_register_gives_few() -> None:
    """So the rules of 10,000 users cost each of them nothing."""
    subjects = [Subject(users=Names(frozenset([f"u{number}"]))) for number in range(1_000)]
    assert Register(subjects).of(caller(Identity("u7", "password"), b"c", "tcp", "")) == [7]
