"""The kinds of connection that most statements are tested with."""

from __future__ import annotations

import pytest

ONE_LOOP = pytest.mark.asyncio(loop_scope="module")
"""The tests of a module share the event loop of their broker."""
VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["v3.1.1", "v5"])
KEPT = pytest.mark.parametrize("kept", [False, True], ids=["ephemeral", "durable"])
"""Whether the session of the subscriber ends with its connection: the gateway serves one, a session actor the other."""
MALFORMED, PROTOCOL_ERROR = 0x81, 0x82

ILL_FORMED = {
    "surrogate": b"a\xed\xa0\x80",
    "overlong": b"a\xc0\x80",
    "cut": b"a\xe2\x82",
    "beyond Unicode": b"a\xf4\x90\x80\x80",
    "no UTF-8": b"a\xff",
    "null": b"a\x00",
}
BAD_STRINGS = pytest.mark.parametrize("bad", ILL_FORMED.values(), ids=ILL_FORMED.keys())
