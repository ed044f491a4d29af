"""SASLprep (RFC 4013): the one form of a password, however its letters were typed.  Clients that speak SCRAM bring theirs into it."""

from __future__ import annotations

import stringprep as tables
from unicodedata import ucd_3_2_0

_FORBIDDEN = (
    tables.in_table_c12,
    tables.in_table_c21_c22,
    tables.in_table_c3,
    tables.in_table_c4,
    tables.in_table_c5,
    tables.in_table_c6,
    tables.in_table_c7,
    tables.in_table_c8,
    tables.in_table_c9,
    tables.in_table_a1,
)


def saslprep(text: str) -> str:
    """For what is stored: a character without a meaning in Unicode 3.2 is refused.  Raises ValueError, which names no other character."""
    mapped = "".join([" " if tables.in_table_c12(each) else each for each in text if not tables.in_table_b1(each)])
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    for character in prepared:
        if any(forbids(character) for forbids in _FORBIDDEN):
            raise ValueError(f"the character U+{ord(character):04X} is not allowed in a password for SCRAM")
    if not prepared:
        raise ValueError("a password for SCRAM has at least one character")
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """Text from right to left has no letter of the other direction, and begins and ends in its own (RFC 3454, 6)."""
    if not any(tables.in_table_d1(each) for each in text):
        return
    if any(tables.in_table_d2(each) for each in text) or not (tables.in_table_d1(text[0]) and tables.in_table_d1(text[-1])):
        raise ValueError("a password for SCRAM with letters of both directions")
