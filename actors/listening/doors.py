"""All listeners of one gateway: opened together, changed together, closed together."""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

from actors.connection import ClientConnection, ConnectionOwner
from actors.listening.arrival import Arrival
from actors.listening.contexts import Contexts
from actors.listening.door import Door
from actors.listening.exhausted import Exhausted
from actors.listening.options import WEB, DoorOptions
from actors.listening.websocket import WebSocketConnection
from actors.topology import ListenerInfo


class DoorsOwner(ConnectionOwner, Protocol):
    def revoked(self, serials: frozenset[str]) -> None:
        """Certificates with these serial numbers count no more."""


class Doors:
    """Numbers connections: no number is used twice in this process."""

    def __init__(self, owner: DoorsOwner, gateway: int, run_dir: Path, name: str) -> None:
        self._owner = owner
        self._gateway = gateway
        self._contexts = Contexts(run_dir, name, owner.revoked)
        self._exhausted = Exhausted(run_dir, name)
        self._doors: dict[str, Door] = {}
        self._sockets = count(1)

    async def open(self, wanted: Sequence[DoorOptions], own_port: int | None) -> list[ListenerInfo]:
        """own_port: of this gateway alone, beside that of the listener tcp; None: none.  Raises OSError with one sentence."""
        await self._contexts.open({options.name: options.tls for options in wanted if options.tls is not None})
        infos: list[ListenerInfo] = []
        try:
            for options in wanted:
                door = Door(options, self._gateway, self)
                infos += door.open(own_port=own_port if options.name == "tcp" and options.kind != "unix" else None)
                self._doors[options.name] = door
        except OSError:
            self.close()
            raise
        return infos

    def change(self, wanted: Sequence[DoorOptions]) -> None:
        """Of those that are open; others come, and go, with the next start."""
        for options in wanted:
            if options.name in self._doors:
                self._doors[options.name].change(options)
        self._contexts.change({options.name: options.tls for options in wanted if options.tls is not None})

    def close(self) -> None:
        self._contexts.close()
        self._exhausted.close()
        for door in self._doors.values():
            door.close()
        self._doors.clear()

    @property
    def infos(self) -> tuple[ListenerInfo, ...]:
        """Of all that are open, as they are now."""
        return tuple([info for door in self._doors.values() for info in door.infos])

    @property
    def exhaustions(self) -> int:
        """How often a door had to rest, because there were no descriptors."""
        return self._exhausted.times

    # ------------------------------------------------------------------ DoorOwner

    def arrived(self, arrival: Arrival, door: Door) -> ClientConnection:
        made = WebSocketConnection if arrival.door.kind in WEB else ClientConnection
        return made(self._owner, next(self._sockets), arrival, door.gone)

    def context(self, listener: str) -> ssl.SSLContext:
        return self._contexts.current(listener)

    def exhausted(self, listener: str, cause: str) -> None:
        self._exhausted.met(listener, cause)


def former_port(run_dir: Path, name: str) -> int:
    """The port that gateway NAME had for itself before, so that a client finds the same one after a restart; 0: it had none."""
    try:
        rows = json.loads((run_dir / f"{name}.json").read_text(encoding="utf-8"))["listeners"]
        return next((int(row["port"]) for row in rows if row["name"] == "tcp" and not row["shared"]), 0)
    except (OSError, ValueError, KeyError):
        return 0
