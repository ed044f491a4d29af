"""The register: the small linearizable store of who leads each shard, asked with read, compare-and-set and list.

A port.  Behind it one copy on one site (actors.register.local), asked over a link by the others (actors.register.linked), or etcd
(actors.register.etcd); all pass one contract suite (tests/actors/register/test_register_contract.py).

Always holds:
1. linearizable: what a read returns was there at a moment between its call and its answer, and so for a change that is DONE;
2. versions of one key only grow, also over its absence; 0 stands for no value;
3. after CONFLICT nothing was changed.  After UNKNOWN the change was made, will be made at some time, or never is; when a read returns a
   version other than the one that was compared, it cannot come any more;
4. a read or a list that cannot be answered raises RegisterAway; it never answers from memory.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from shards.replication.ports import Outcome, RegisterAway

VALUE_BYTES_MAX = 64 << 10
KEY_BYTES_MAX = 1 << 10
LISTED_MAX = 1_000
"""Keys with one prefix: there is one for each shard, and a few beside them.  More is a mistake, and refused with RegisterMistake."""
NO_VALUE = 0
"""The version of a key that has no value."""


@dataclass(frozen=True, slots=True)
class Held:
    """A value, and the version to compare with when it is replaced."""

    value: bytes
    version: int


class RegisterMistake(RegisterAway):
    """It was asked in a way that does not get better by itself: an address, a certificate, a password.  One sentence for the operator."""


class Register(Protocol):
    def read(self, key: str) -> Awaitable[Held | None]:
        """Raises RegisterAway."""

    def cas(self, key: str, version: int, new: bytes) -> Awaitable[Outcome]:
        """Replace the value if it has this version; NO_VALUE: if there is none.  Raises nothing of the world's: what is not known is
        UNKNOWN."""

    def list(self, prefix: str) -> Awaitable[dict[str, Held]]:
        """All keys that begin so, sorted, as they were at one moment; prefix is not empty.  Raises RegisterAway."""

    def close(self) -> Awaitable[None]:
        """What is under way ends as RegisterAway or UNKNOWN."""


def check_change(key: str, version: int, new: bytes) -> None:
    """What the caller must not ask for."""
    assert key and len(key.encode()) <= KEY_BYTES_MAX, f"register key of {len(key)} characters"
    assert version >= NO_VALUE and len(new) <= VALUE_BYTES_MAX, f"{key}: version {version}, value of {len(new)} bytes"
