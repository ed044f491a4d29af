"""A connection from the moment it was accepted: by which door, from where, and since when."""

from __future__ import annotations

from dataclasses import dataclass

from actors.listening.options import DoorOptions


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """eq=False: one is never another, however alike."""

    door: DoorOptions
    """As it was when the connection came; what changes later is for later ones."""
    peer: str
    """For people: address and port, or `unix`."""
    address: str
    """As rules and limits know it; empty: it has none."""
    loopback: bool
    """From this machine, to an address of it, no proxy between."""
    began_ms: int
    """On the clock of the loop."""

    @property
    def listener(self) -> str:
        return self.door.name
