"""What processes are told about access: all of it is right, or nothing is taken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.bundle import Bundle, BundleError
from access.identity import ANONYMOUS
from access.rights import Right
from access.rules_file import RulesError

RULES = 'version = 1\n[[rule]]\nallow = ["publish"]\ntopics = ["a"]\n'
WHOLE = Bundle(7, RULES, True, False, "0" * 64, ("the file /etc/rules is gone.",))


@pytest.mark.parametrize("bundle", [WHOLE, Bundle(1), Bundle(0, "", decides=True)])
def test_a_bundle_comes_back_as_it_was(bundle: Bundle) -> None:
    """No file is not an empty file."""
    assert Bundle.from_json(bundle.to_json()) == bundle


def may(bundle: Bundle, topic: bytes) -> bool:
    profile = bundle.access().profile(ANONYMOUS, b"c", "tcp", "127.0.0.1")
    return profile is None or profile.may(Right.PUBLISH, topic)


def test_a_bundle_becomes_access() -> None:
    """By its rules; without rules, claims and a plugin that decides everybody may do everything."""
    assert may(WHOLE, b"a") and not may(WHOLE, b"b")
    assert may(Bundle(1), b"b")
    assert not may(Bundle(1, "version = 1"), b"b")
    assert not may(Bundle(1, claims=True), b"b") and not may(Bundle(1, decides=True), b"b")


@pytest.mark.parametrize("text", ["", "version = 2", RULES[:-2]])
def test_rules_that_cannot_be_read_open_nothing(text: str) -> None:
    """An empty text is a file of which all is missing, not one that is not configured."""
    with pytest.raises(RulesError):
        Bundle(1, text).access()


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(WHOLE.to_json()), **fields})


BROKEN = {
    "": "0 characters that are no JSON, an access bundle is wanted",
    WHOLE.to_json()[:-1]: "that are no JSON",
    "[" * 100_000: "100000 characters that are no JSON",
    "null": "NoneType in an access bundle, wanted are version, rules_text",
    "[]": "list in an access bundle",
    "{}": "nothing in an access bundle",
    '{"version": 1}': "version in an access bundle, wanted are version, rules_text",
    changed(more=1): "claims, decides, more, password_sha256",
    changed(version="7"): "`version` of an access bundle is '7', wanted is a whole number from 0 on",
    changed(version=True): "`version` of an access bundle is True",
    changed(version=-1): "`version` of an access bundle is -1",
    changed(version=None): "`version` of an access bundle is None",
    changed(rules_text=0): "`rules_text` of an access bundle is 0, wanted is a text or null",
    changed(rules_text=False): "`rules_text` of an access bundle is False",
    changed(claims=0): "`claims` of an access bundle is 0, wanted is true or false",
    changed(decides="no"): "`decides` of an access bundle is 'no', wanted is true or false",
    changed(password_sha256="0" * 63): "wanted is 64 hexadecimal digits or nothing",
    changed(password_sha256="0" * 64 + "\n"): "wanted is 64 hexadecimal digits or nothing",
    changed(password_sha256=None): "`password_sha256` of an access bundle is None",
    changed(problems="a"): "`problems` of an access bundle is 'a', wanted is a list of texts",
    changed(problems=["a", 1]): "wanted is a list of texts",
}


@pytest.mark.parametrize(("text", "story"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_bundle_of_which_a_part_is_wrong_is_refused_as_a_whole(text: str, story: str) -> None:
    """With one sentence that says what was found and what was wanted."""
    with pytest.raises(BundleError) as caught:
        Bundle.from_json(text)
    assert story in str(caught.value) and len(str(caught.value)) < 400


@given(st.integers(0, len(WHOLE.to_json()) - 1))
def test_a_bundle_that_was_cut_off_is_refused(length: int) -> None:
    """Wherever that was."""
    with pytest.raises(BundleError):
        Bundle.from_json(WHOLE.to_json()[:length])
