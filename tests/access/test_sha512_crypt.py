"""crypt's SHA-512 beside the C library's, and by the values of its description."""

from __future__ import annotations

import importlib
import random
import sys
import warnings
from typing import Any

import pytest

from access.sha512_crypt import PASSWORD_BYTES_MAX, ROUNDS_MIN, sha512_crypt


def of_the_system() -> Any:
    """`crypt.crypt` of Python 3.11 and 3.12."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("crypt").crypt


# From the end of the description of the format; 1,000 and 1,400 rounds, lengths on both sides of one digest.
KNOWN = [
    (
        "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
        b"Hello world!",
        5_000,
    ),
    (
        "$6$rounds=1400$anotherlongsalts$POfYwTEok97VWcjxIiSOjiykti.o/pQs.wPvMxQ6Fm7I6IoYN3CmLs66x9t0oSwbtEW7o7UmJEiDwGqd8p4ur1",
        b"a very much longer text to encrypt.  This one even stretches over morethan one line.",
        1_400,
    ),
    (
        "$6$rounds=1000$roundstoolow$kUMsbe306n21p9R.FRkW3IGn.S9NPN0x50YhH1xhLsPuWGsUSklZt58jaTfF4ZEQpyUNGc0dqbpBYYBaHHrsX.",
        b"the minimum number is still observed",
        1_000,
    ),
]


@pytest.mark.parametrize(("entry", "password", "rounds"), KNOWN)
def test_known_values(entry: str, password: bytes, rounds: int) -> None:
    """Those that the format was published with."""
    salt, wanted = entry.split("$")[-2:]
    assert sha512_crypt(password, salt.encode(), rounds) == wanted


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="needs crypt of Python 3.12 or older")
def test_the_c_library_finds_the_same() -> None:
    """Every length of salt, passwords of lengths around 64 and 128 and the longest, bytes that are no ASCII."""
    crypt = of_the_system()
    draw = random.Random(6)
    lengths = [0, 1, 2, 3, 7, 31, 63, 64, 65, 127, 128, 129, 200, PASSWORD_BYTES_MAX, 5, 16]
    for index, length in enumerate(lengths):
        password = "".join([draw.choice("abc é€𝛂 $:/") for _ in range(length)]).encode()[:length].decode(errors="ignore")
        salt = "".join([draw.choice("./09AZaz") for _ in range(1 + index)])
        rounds = ROUNDS_MIN + index
        assert (
            crypt(password, f"$6$rounds={rounds}${salt}")
            == f"$6$rounds={rounds}${salt}${sha512_crypt(password.encode(), salt.encode(), rounds)}"
        )
