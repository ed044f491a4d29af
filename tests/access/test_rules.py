"""Rules that need no file."""

from __future__ import annotations

import pytest

from access.identity import ANONYMOUS
from access.rights import Extent, Right
from access.rules import CLOSED, OPEN


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
