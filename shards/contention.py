"""Clients that take a client id from one another, over and over: the newcomer has to wait, longer and longer.

A few takeovers are how a client comes back that has lost its connection.  From more than `takeovers_max` within 30 s on, whoever comes
waits 1, 2, 4 ... 30 s while the one that is there is served; when the time is over, the first who asks again takes over.  Each 30 s /
`takeovers_max` in which nobody asked halve the wait: takeovers as rare as that are no fight.  After 60 s without anybody who asks it is
forgotten.  Only in RAM: after a restart of the home it begins anew.

Holds after every call (see check): at most CLIENTS_MAX clients are known, in the order in which they were asked about last.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW_MS = 30_000
WAIT_MS = 1_000
WAIT_MS_MAX = 30_000
PEACE_MS = 60_000
_HALVED_MAX = WAIT_MS_MAX.bit_length()
CLIENTS_MAX = 10_000
"""Beyond it the one that was longest in peace is forgotten."""


@dataclass(slots=True)
class _Fight:
    taken_ms: deque[int] = field(default_factory=deque)
    asked_ms: int = 0
    wait_ms: int = 0
    """How long the last one had to wait; 0: nobody had to yet."""
    until_ms: int = 0
    """Who is there is served until then; 0: nobody waits."""


class Contention:
    def __init__(self, takeovers_max: int) -> None:
        """takeovers_max: within WINDOW_MS; 0: nobody ever waits."""
        self.takeovers_max = takeovers_max
        self._fights: dict[bytes, _Fight] = {}
        self._contended = 0
        self._told = False
        """Somebody had to wait since the last word that all are in peace."""

    @property
    def contended(self) -> int:
        """Clients of which somebody had to wait."""
        return self._contended

    def takes(self, client: bytes, now_ms: int) -> tuple[int, bool]:
        """Somebody comes while the client is connected: how long it has to wait, 0: it takes over; and whether a wait begins with it."""
        if not self.takeovers_max:
            return 0, False
        fight = self._calmed(client, now_ms)
        if fight.until_ms > now_ms:
            return fight.until_ms - now_ms, False
        while fight.taken_ms and fight.taken_ms[0] <= now_ms - WINDOW_MS:
            fight.taken_ms.popleft()
        if not fight.until_ms and (fight.wait_ms or len(fight.taken_ms) >= self.takeovers_max):
            self._contended += not fight.wait_ms
            self._told = True
            fight.wait_ms = min(max(WAIT_MS, fight.wait_ms * 2), WAIT_MS_MAX)
            fight.until_ms = now_ms + fight.wait_ms
            return fight.wait_ms, True
        fight.until_ms = 0
        fight.taken_ms.append(now_ms)
        return 0, False

    def forget(self, now_ms: int) -> bool:
        """Forget those that are in peace; whether the last one that was contended is so now, said once."""
        while self._fights:
            client = next(iter(self._fights))
            if self._fights[client].asked_ms + PEACE_MS > now_ms:
                break
            self._drop(client)
        in_peace = self._told and not self._contended
        self._told = self._told and not in_peace
        return in_peace

    def _calmed(self, client: bytes, now_ms: int) -> _Fight:
        """What is known of the client, its wait halved as often as its calm says.  While somebody has to wait there is no calm: it may
        ask again only at the end."""
        fight = self._fights.pop(client, None) or _Fight()
        calm_ms = now_ms - max(fight.asked_ms, fight.until_ms)
        if fight.wait_ms and calm_ms > 0:
            wait_ms = fight.wait_ms >> min(calm_ms * self.takeovers_max // WINDOW_MS, _HALVED_MAX)
            fight.wait_ms = wait_ms if wait_ms >= WAIT_MS else 0
            self._contended -= not fight.wait_ms
        fight.asked_ms = now_ms
        self._fights[client] = fight
        if len(self._fights) > CLIENTS_MAX:
            self._drop(next(iter(self._fights)))
        return fight

    def _drop(self, client: bytes) -> None:
        self._contended -= bool(self._fights.pop(client).wait_ms)

    def check(self) -> None:
        asked = [fight.asked_ms for fight in self._fights.values()]
        assert len(asked) <= CLIENTS_MAX and asked == sorted(asked)
        assert self._contended == sum(fight.wait_ms > 0 for fight in self._fights.values())
