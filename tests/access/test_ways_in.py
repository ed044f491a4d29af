"""The same name by every way in: who somebody is does not depend on how he proves it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final

import pytest

from access.certificates import names_of
from access.identity import check_name
from access.passwords import read_password_file, verify
from access.scram import ScramServer
from access.tokens import read_token
from tests.access.names import HOSTILE_NAMES, VICTIM
from tests.access.test_certificates import certificate
from tests.access.test_passwords import salted
from tests.access.test_scram import PENCIL, answer
from tests.access.test_tokens import ALL, HS, NOW, SHARED, by_hand


def by_password(name: str) -> str:
    """The one user of a file of two lines whose password this is."""
    users = read_password_file(f"{VICTIM}x:{salted(b'other')}\n{name}:{salted()}\n".encode())
    (found,) = [user for user, entry in users.passwords.items() if verify(entry, b"secret")]
    return found


def by_scram(name: str) -> str:
    """He and the victim have the same password."""
    exchange = ScramServer({VICTIM: PENCIL, name: PENCIL}, b"s", "xyz")
    first = f"n,,n={name.replace('=', '=3D').replace(',', '=2C')},r=abc".encode()
    final, _ = answer(b"pencil", first, exchange.first(first))
    return exchange.final(final)[0]


def by_token(name: str) -> str:
    return read_token(by_hand(HS, {"sub": name, "exp": NOW}), SHARED, ALL, NOW).identity.user


def by_certificate(name: str) -> str:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Attribute's length must be", UserWarning)
        return names_of(certificate(name), "cn")[0][1]


WAYS: Final[dict[str, Callable[[str], str]]] = {
    "password": by_password,
    "scram": by_scram,
    "token": by_token,
    "certificate": by_certificate,
}


def is_name(name: str) -> bool:
    try:
        return check_name(name) == name
    except ValueError:
        return False


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_name_is_itself_or_nobody(way: str) -> None:
    """Nobody becomes somebody else by the way he comes in.  A file has its own marks: blanks at the ends, `#` at the beginning, `:` and
    ends of lines are no part of a name there; who writes one has to look for them, and a reader sees other lines."""
    for name in HOSTILE_NAMES:
        written = way != "password" or (name == name.strip(" \t\r") and not name.startswith("#") and not {":", "\n"} & set(name))
        if is_name(name) and written:
            assert WAYS[way](name) == name
        elif written:
            with pytest.raises(ValueError, match="name"):
                WAYS[way](name)
        elif ":" in name and is_name(name) and not name.startswith("#"):
            with pytest.raises(ValueError, match="line 2: "):
                WAYS[way](name)
