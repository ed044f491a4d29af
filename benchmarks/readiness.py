"""Which of a process's clients have input, by epoll; and which wait for room in their socket."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from benchmarks.clients import Connection


class Client(Protocol):
    """Anything that owns one connection."""

    @property
    def connection(self) -> Connection: ...


C = TypeVar("C", bound=Client)


class Readiness(Generic[C]):
    """An epoll over clients and the pipe to the parent. A closed connection is dropped from it at the next question."""

    def __init__(self, clients: Sequence[C], parent: int) -> None:
        self._epoll = select.epoll()
        self._parent = parent
        self._epoll.register(parent, select.EPOLLIN)
        self.parent_spoke = False
        self._clients = {client.connection.fileno(): client for client in clients}
        self._blocked: set[int] = set()
        for fileno in self._clients:
            self._epoll.register(fileno, select.EPOLLIN)

    def watch_room(self) -> bool:
        """Wakes also for those with bytes to send, and says whether there are any."""
        for fileno, client in self._clients.items():
            blocked = client.connection.pending and client.connection.open
            if blocked != (fileno in self._blocked):
                self._epoll.modify(fileno, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))
                (self._blocked.add if blocked else self._blocked.discard)(fileno)
        return bool(self._blocked)

    def readable(self, wait_s: float) -> list[C]:
        """Those with input, waiting for one up to so long."""
        for fileno in [fileno for fileno, client in self._clients.items() if not client.connection.open]:
            self._epoll.unregister(fileno)
            self._blocked.discard(fileno)
            del self._clients[fileno]
        ready = []
        for fileno, events in self._epoll.poll(wait_s):
            if fileno == self._parent:
                self.parent_spoke = True
            elif events & ~select.EPOLLOUT:
                ready.append(self._clients[fileno])
        return ready
