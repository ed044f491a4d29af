"""SASLprep: the examples of RFC 4013, and each reason for a no."""

from __future__ import annotations

import pytest

from access.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("Zoe\u0308", "Zoë"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("\u06271\u0628", "\u06271\u0628"),
    ],
)
def test_one_password_has_one_form(text: str, prepared: str) -> None:
    """The first five are those of RFC 4013, 3."""
    assert saslprep(text) == prepared
    assert saslprep(prepared) == prepared


@pytest.mark.parametrize(
    ("text", "story"),
    [
        ("\u0007", r"U\+0007 is not allowed"),
        ("\u0627\u0031", "both directions"),
        ("\u0627a\u0628", "both directions"),
        ("a\ud800", r"U\+D800"),
        ("\ue000", r"U\+E000"),
        ("\ufffe", r"U\+FFFE"),
        ("\u200e", r"U\+200E"),
        ("\U000e0001", r"U\+E0001"),
        ("\u0221", r"U\+0221"),
        ("", "at least one character"),
        ("\u00ad", "at least one character"),
    ],
)
def test_what_has_no_form_is_refused(text: str, story: str) -> None:
    """The first two are those of RFC 4013, 3."""
    with pytest.raises(ValueError, match=story):
        saslprep(text)
