"""What wrong passwords cost the one who sent them: waiting, for a pair of user and address.

    0 to 4 wrong ones    none
    the fifth            1 s until the next is looked at
    each further one     twice as long, 30 s at most

A pair is forgotten a minute after its last wait was over, and when PAIRS_MAX others came after it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

FREE: Final = 4
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
FORGOTTEN_AFTER_S: Final = 60.0
PAIRS_MAX: Final = 10_000


@dataclass(slots=True)
class _Pair:
    wrong: int
    free_s: float
    """When the next is looked at."""


class Slowing:
    """key: random, of this process: nobody can choose names that fall together."""

    def __init__(self, key: bytes, pairs_max: int = PAIRS_MAX) -> None:
        self._key = key
        self._pairs_max = pairs_max
        self._pairs: OrderedDict[bytes, _Pair] = OrderedDict()

    def pair(self, user: str, address: str) -> bytes:
        """A name of any length as a few bytes."""
        return hashlib.blake2b(
            user.encode(errors="surrogatepass") + b"\0" + source(address).encode(), key=self._key, digest_size=16
        ).digest()

    def wait_s(self, pair: bytes, now_s: float) -> float:
        """0: it may be looked at."""
        found = self._pairs.get(pair)
        return 0.0 if found is None else max(0.0, found.free_s - now_s)

    def wrong(self, pair: bytes, now_s: float) -> None:
        found = self._pairs.get(pair)
        if found is None or now_s - found.free_s > FORGOTTEN_AFTER_S:
            found = self._pairs[pair] = _Pair(0, now_s)
        self._pairs.move_to_end(pair)
        found.wrong += 1
        doublings = min(found.wrong - FREE - 1, 10)
        found.free_s = now_s + (0.0 if doublings < 0 else min(FIRST_WAIT_S * 2**doublings, LONGEST_WAIT_S))
        if len(self._pairs) > self._pairs_max:
            self._pairs.popitem(last=False)


def source(address: str) -> str:
    """Who is one source of connections: an address, of IPv6 its network of 64 bits, of which a host has as many as it likes."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(IPv6Address(int(found) >> 64 << 64))
    return address
