"""Identities and their form in bytes."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.identity import ANONYMOUS, NAME_BYTES_MAX, PACKED_BYTES_MAX, Grant, Identity, check_name
from access.rights import Right

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RIGHTS = st.integers(0, 63).map(Right)
GRANTS = st.builds(Grant, RIGHTS, st.lists(st.binary(max_size=20), max_size=3).map(tuple))
IDENTITIES = st.builds(
    Identity,
    TEXTS,
    st.sampled_from(["anonymous", "password", "scram", "jwt", "certificate", "plugin", "pipeline"]),
    st.lists(TEXTS, max_size=3).map(tuple),
    st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    st.lists(GRANTS, max_size=3).map(tuple),
)


@given(IDENTITIES)
def test_an_identity_comes_back_as_it_was(identity: Identity) -> None:
    """With everything that rules may look at."""
    assert Identity.unpack(identity.pack()) == identity


def test_the_form_of_version_1() -> None:
    """These bytes are in rows: a change of them is a new version.  Nobody in particular is no bytes at all."""
    ann = Identity("ann", "jwt", ("g",), (("site", "7"),), (Grant(Right.PUBLISH | Right.REPLAY, (b"a/#",)),))
    assert ann.pack().hex() == "9601a3616e6ea36a777491a1679192a473697465a13791922191c403612f23"
    assert ANONYMOUS.pack() == b"" and Identity.unpack(b"") is ANONYMOUS


@given(IDENTITIES, st.data())
def test_damaged_bytes_are_refused_or_are_an_identity(identity: Identity, data: st.DataObject) -> None:
    """Never another error, and never something of another shape."""
    packed = bytearray(identity.pack() or b"\x96")
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = Identity.unpack(bytes(packed))
    except ValueError:
        return
    assert Identity.unpack(found.pack()) == found


@pytest.mark.parametrize(
    ("fields", "story"),
    [
        ((2, "u", "jwt", (), (), ()), "version 2 found"),
        ((1, b"u", "jwt", (), (), ()), "bytes found, str wanted"),
        ((1, "u", "jwt", (), (), ((64, ()),)), "rights 64 found, 0 to 63 are known"),
        ((1, "u", "jwt", (), (), ((True, ()),)), "bool found, int wanted"),
        ((1, "u", "jwt", (), (), ((1, ("a",)),)), "str found, bytes wanted"),
        ((1, "u", "jwt"), "not enough values"),
    ],
)
def test_what_is_not_an_identity_is_refused_with_what_was_found(fields: tuple[object, ...], story: str) -> None:
    """A row of which a part is not understood must not become somebody else."""
    with pytest.raises(ValueError, match=story):
        Identity.unpack(msgpack.packb(fields))


def test_an_identity_has_a_largest_size() -> None:
    """On the way out, where somebody can be told, and on the way in."""
    large = Identity("u", "jwt", tuple(["g" * 100] * 90))
    with pytest.raises(ValueError, match=f"the identity of 'u' has 9.* bytes, at most {PACKED_BYTES_MAX} are allowed"):
        large.pack()
    with pytest.raises(ValueError, match="at most 8192 are allowed"):
        Identity.unpack(b"\x96" * (PACKED_BYTES_MAX + 1))


@pytest.mark.parametrize("name", ["a", "meter-7", "Zoë", "a b", "\u200b", "\u00a0", "𝛂", "x" * NAME_BYTES_MAX, "é" * (NAME_BYTES_MAX // 2)])
def test_names_are_taken_as_they_are(name: str) -> None:
    """Nothing is folded or trimmed: two names that differ are two users."""
    assert check_name(name) is name


@pytest.mark.parametrize(
    ("name", "story"),
    [
        ("", "the user name has 0 bytes, 1 to 256 are allowed"),
        ("é" * 129, "the user name has 258 bytes"),
        ("ann\x00", r"the user name has the control character U\+0000 at place 4"),
        ("\x7fann", r"U\+007F at place 1"),
        ("a\x85b", r"U\+0085 at place 2"),
        ("a\nb", r"U\+000A at place 2"),
        ("\ud800", "the user name has no form in UTF-8"),
    ],
)
def test_what_is_no_name_is_refused_without_being_repeated(name: str, story: str) -> None:
    """What stands in the place of a name may be somebody's password, and goes into a log."""
    with pytest.raises(ValueError, match=story) as found:
        check_name(name)
    assert not name or name not in str(found.value)
