"""Who listens for links in this process, by path: the parts that a dial finds without a socket (actors.direct).

Only parts that are made to share a process write themselves down here (`Wire.of` of a compact topology); processes of other parts find
them at the same path by its socket.

Always holds: a path is of one listener, the one that entered it last, and of nobody when that has left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actors.direct import DirectLink

Accept = Callable[["DirectLink"], None]


class Directory:
    def __init__(self) -> None:
        self._listening: dict[str, Accept] = {}

    def enter(self, path: str, accept: Accept) -> None:
        """accept: connects the end that dials with one of its own."""
        self._listening[path] = accept

    def leave(self, path: str, accept: Accept) -> None:
        """Doing it twice is nothing, and so is it when somebody else is there by now."""
        if self._listening.get(path) == accept:
            del self._listening[path]

    def found(self, path: str) -> Accept | None:
        return self._listening.get(path)


HERE: Final = Directory()
"""Of this process."""
