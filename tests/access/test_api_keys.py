"""API keys: what is written is read, and a file that is not as it has to be is not taken at all."""

from __future__ import annotations

import pytest

from access.api_keys import KEYS_MAX, ApiKey, KeyFileError, Shown, bearer, check_name, read_keys, shown_as_basic, shown_as_bearer, written
from tests.access.test_passwords import pbkdf2


def key(name: str = "ann", secret: bytes = b"secret", **fields: object) -> ApiKey:
    given = {"name": name, "id": f"id-{name}", "scope": "read", "hash": pbkdf2(secret), "created_at_ms": 5, **fields}
    return ApiKey.model_validate(given)


def test_keys_are_read_as_they_were_written() -> None:
    """In their order; only the right secret fits, and only until its time."""
    keys = [key(), key("bob", scope="write", expires_at_ms=100)]
    assert read_keys(written(keys)) == keys and read_keys(b"") == []
    assert keys[0].matches("secret") and not keys[0].matches("Secret") and not keys[0].expired(1 << 50)
    assert not keys[1].expired(99) and keys[1].expired(100)


def test_a_secret_is_shown_in_two_ways() -> None:
    """As HTTP has them; what has no divider shows nothing."""
    assert shown_as_bearer(bearer("i", "s.t")) == Shown("i", "s.t") and shown_as_basic("i:s:t") == Shown("i", "s:t")
    assert shown_as_bearer("i:s") is None and shown_as_basic("i.s") is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "the file is not as it has to be"),
        (b'{"version": 2, "keys": []}', "version is not as it has to be"),
        (b'{"version": 1, "keys": [{}]}', "keys.0.name is not as it has to be"),
        (written([key()]).replace(b"$7$101", b"$7$99999999"), "keys.0 is not as it has to be"),
        (written([key()]).replace(b'"read"', b'"all"'), "keys.0.scope is not as it has to be"),
        (written([key(), key("bob")]).replace(b"id-bob", b"id-ann"), "two keys have the same id"),
        (written([key(), key("bob")]).replace(b'"bob"', b'"ann"'), "two keys have the same name"),
        (b" " * (1 << 21), "a file of 2097152 bytes found"),
    ],
)
def test_a_file_with_a_mistake_is_refused_as_a_whole(data: bytes, said: str) -> None:
    """One sentence, and no part of a hash in it."""
    with pytest.raises(KeyFileError, match=said) as refused:
        read_keys(data)
    assert "$7$" not in str(refused.value)


def test_bounds_of_names_and_numbers() -> None:
    """A name is what fits into a line for people."""
    for name in ("", "a b", "x" * 65, "ä", "a\n"):
        with pytest.raises(ValueError, match="is no name of a key"):
            check_name(name)
    with pytest.raises(KeyFileError, match=f"more than {KEYS_MAX} keys"):
        written([key()] * (KEYS_MAX + 1))
