"""How many connections one listener of one gateway has, and how fast new ones come.

Counts only, and says what to do; the door does it.  What is known of addresses that have no connection is bounded, so an attacker with
very many of them makes it forget, and costs nothing.

Always holds: an address is in the table of those that are here exactly while it has a connection.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

ADDRESSES_MAX: Final = 10_000
"""Addresses whose rate is remembered; then the one that came longest ago is forgotten."""
_NET_GROUPS: Final = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit."""

    connections_max: int
    connections_per_address_max: int | None = None
    connect_rate: int | None = None
    connect_rate_per_address: int | None = None


class Limiter:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.connections = 0
        self._here: dict[str, int] = {}
        self._all = _Bucket(0.0, 0)
        self._of: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_ms(self, now_ms: int) -> int:
        """How long no further connection is to be accepted; 0: one may be now."""
        rate = self.limits.connect_rate
        return 0 if rate is None else self._all.wait_ms(rate, now_ms)

    def accepted(self, now_ms: int) -> bool:
        """A connection is there.  False: one too many, to be closed, and then it has not been counted."""
        if self.limits.connect_rate is not None:
            self._all.take(self.limits.connect_rate, now_ms)
        if self.connections >= self.limits.connections_max:
            return False
        self.connections += 1
        return True

    def known(self, address: str, now_ms: int) -> str:
        """It is known where it comes from.  Why it is to be closed, empty: it may stay; `gone` then tells of its end."""
        limits = self.limits
        if limits.connections_per_address_max is None and limits.connect_rate_per_address is None:
            return ""
        net = net_of(address)
        if limits.connections_per_address_max is not None and self._here.get(net, 0) >= limits.connections_per_address_max:
            return f"{net} has {self._here[net]} connections, as many as connections_per_address_max allows"
        rate = limits.connect_rate_per_address
        if rate is not None and not self._may_come(net, rate, now_ms):
            return f"{net} connects more often than {rate} times a second (connect_rate_per_address)"
        self._here[net] = self._here.get(net, 0) + 1
        return ""

    def gone(self, address: str | None) -> None:
        """address None: `known` was not asked about it, or said no."""
        self.connections -= 1
        if address is None:
            return
        net = net_of(address)
        # Without an entry it came while there was no limit.
        left = self._here.pop(net, 0) - 1
        if left > 0:
            self._here[net] = left

    def _may_come(self, net: str, rate: int, now_ms: int) -> bool:
        bucket = self._of.get(net)
        if bucket is None:
            bucket = self._of[net] = _Bucket(float(rate), now_ms)
            if len(self._of) > ADDRESSES_MAX:
                self._of.popitem(last=False)
        else:
            self._of.move_to_end(net)
        if bucket.wait_ms(rate, now_ms):
            return False
        bucket.take(rate, now_ms)
        return True


class _Bucket:
    """A second's worth may come at once."""

    __slots__ = ("_at_ms", "_left")

    def __init__(self, left: float, at_ms: int) -> None:
        self._left = left
        self._at_ms = at_ms

    def wait_ms(self, rate: int, now_ms: int) -> int:
        left = self._filled(rate, now_ms)
        return 0 if left >= 1 else int((1 - left) * 1000 / rate) + 1

    def take(self, rate: int, now_ms: int) -> None:
        self._left = self._filled(rate, now_ms) - 1
        self._at_ms = now_ms

    def _filled(self, rate: int, now_ms: int) -> float:
        return min(float(rate), self._left + (now_ms - self._at_ms) * rate / 1000)


def net_of(address: str) -> str:
    """What counts as one address: of IPv6 the net (/64) that a site has at least, since whoever has one has all of it."""
    if ":" not in address:
        return address
    head, found, tail = address.partition("::")
    groups = head.split(":") if head else []
    if found:
        behind = tail.split(":") if tail else []
        groups += ["0"] * (8 - len(groups) - len(behind)) + behind
    return ":".join(groups[:_NET_GROUPS]) + "::/64"
