"""The network: links between processes and connections of clients, as what TCP and unix sockets promise and no more.

What is sent over a wire arrives in order, after a while, cut off at some point when the wire breaks: the end of what was under
way is lost, and the two ends hear of it at different times.  A wire can be held: what is on it arrives late.  A killed
process leaves its wires to the kernel, which mostly still delivers what was written.

Where `World.whole_frames` is set a frame is heard as it is, as by actors.direct.  Nobody may change one: neither who sent it, before
it is heard and for as long as he keeps it, nor who heard it.

`Dialler` and the two-way greeting stand for actors.links: the dialling end is up one way earlier than the other, frames of
either end come behind its greeting, and a greeting that does not come within 5 s ends the attempt.

Holds: an owner hears link_up before the first frame and link_down after the last, once each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from tests.sim.process import Process
from tests.sim.world import MS, SECOND, World

GREETING_US = 5 * SECOND
RECONNECT_US = (20 * MS, 500 * MS)
_HELLO: Final = b"hello"
_UP: Final = b"up"
_TURN_US = (5, 50)

REMEMBERED = 300
"""Whole frames that are looked at once more when so many others have been sent."""

F = TypeVar("F")
Address = tuple[str, int]
"""A role and an index: who listens there changes with every restart."""


class WholeFrame(bytes):
    """A frame that is heard as it is, and its bytes when it was sent."""

    frame: Any
    encode: Callable[[Any], bytes]

    def check(self, whose: str) -> None:
        assert self.encode(self.frame) == self, f"{whose} has changed a frame: it was {bytes(self)!r}, and is {self.frame}"


def taken(data: bytes, decode: Callable[[bytes], F]) -> F:
    return cast("F", data.frame) if isinstance(data, WholeFrame) else decode(data)


class Owner(Protocol):
    def link_up(self, end: End) -> None: ...

    def link_frame(self, end: End, data: bytes) -> None: ...

    def link_down(self, end: End) -> None: ...


class End:
    """One end of a wire.  number: never used twice in a world.  left_us: when what is being heard was sent."""

    __slots__ = ("_inbox", "arrives_us", "broken", "gone", "left_us", "number", "owner", "peer", "process", "up", "wire")

    def __init__(self, wire: Wire, process: Process, owner: Owner, number: int) -> None:
        self.number = number
        self.process = process
        self.owner = owner
        self.wire = wire
        self.peer: End
        self.up = False
        self.broken = False
        """What is sent from here goes nowhere."""
        self.gone = False
        """The owner has heard of the end, or is dead."""
        self.left_us = 0
        self.arrives_us = 0
        self._inbox: deque[tuple[bytes, bool, int]] = deque()

    # ------------------------------------------------------------------ for the owner

    @property
    def peer_role(self) -> str:
        return self.peer.process.role

    @property
    def peer_name(self) -> str:
        return self.peer.process.name

    @property
    def unread_bytes(self) -> int:
        """What the other end has not read yet."""
        return sum([len(data) for data, _, _ in self.peer._inbox])

    def send(self, data: bytes) -> None:
        """Write one frame, or bytes; dropped silently when the wire is broken (link_down says so)."""
        if not self.broken:
            self.wire.carry(self, data, False)

    def hand_on(self, frame: F, encode: Callable[[F], bytes]) -> None:
        self.send(self.wire.network.packed(frame, encode))

    def close(self, why: str) -> None:
        """What was written still arrives; this end hears link_down at the end of its turn and no frame before it."""
        self.wire.break_(why, closed_by=self)

    # ------------------------------------------------------------------ for the wire

    def put(self, data: bytes, greeting: bool, now_us: int, at_us: int) -> None:
        self._inbox.append((data, greeting, now_us))
        if at_us > self.arrives_us:
            self.arrives_us = at_us

    def lose_tail(self, kept: int) -> None:
        while len(self._inbox) > kept:
            self._inbox.pop()

    def waiting(self) -> int:
        return len(self._inbox)

    def arrive(self) -> None:
        """The oldest of what is under way is here."""
        if self.gone or not self._inbox:
            return
        world, held_until_us = self.wire.world, self.wire.held_until_us
        if held_until_us > world.now_us:
            world.later(held_until_us - world.now_us, self.arrive)
            return
        data, greeting, left_us = self._inbox.popleft()
        self.process.deliver(self, self._hear, data, greeting, left_us)

    def _hear(self, data: bytes, greeting: bool, left_us: int) -> None:
        if self.gone or self.wire.closed_by is self:
            return
        self.left_us = left_us
        if isinstance(data, WholeFrame):
            data.check(f"{self.peer_name}, who sent it,")
            self.owner.link_frame(self, data)
            data.check(f"{self.process.name}, who heard it,")
        elif not greeting:
            self.owner.link_frame(self, data)
        elif data is _HELLO:
            self.wire.carry(self, _UP, True)
        else:
            if self.wire.dialler is self:
                self.wire.carry(self, _UP, True)
            self.up = True
            self.owner.link_up(self)

    def down(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._inbox.clear()
        was_up, self.up = self.up, False
        if was_up:
            self.owner.link_down(self)
        if self.wire.dialler is self:
            self.wire.lost(was_up)


class Wire:
    """Two ends.  slow_to_hear_us: how late an end may hear that the wire is broken."""

    def __init__(self, network: Network, dialler: Process, owner: Owner, listener: Process, accepted: Owner, slow_to_hear_us: int) -> None:
        self.world = network.world
        self.held_until_us = 0
        self.closed_by: End | None = None
        self.whole = True
        self.broken_us = -1
        """When it broke, which an end may hear much later."""
        self.lost: Callable[[bool], None] = _nothing
        """The dialler is told when its end is down, and whether it was up."""
        self.network = network
        self._slow_to_hear_us = slow_to_hear_us
        self.dialler = End(self, dialler, owner, network.next_number())
        self.accepted = End(self, listener, accepted, network.next_number())
        self.dialler.peer, self.accepted.peer = self.accepted, self.dialler

    @property
    def name(self) -> str:
        return f"{self.dialler.process.name}={self.accepted.process.name}"

    def greet(self) -> None:
        """Begin the greeting of a link between processes."""
        self.carry(self.dialler, _HELLO, True)

    def connect(self) -> None:
        """A connection of a client: its end is up at once, the other one when it is accepted."""
        self.dialler.up = True
        self.carry(self.dialler, _UP, True)

    def carry(self, sender: End, data: bytes, greeting: bool) -> None:
        receiver = sender.peer
        if sender.broken or receiver.gone:
            return
        world = self.world
        now_us = world.now_us
        at_us = now_us + self.network.delay_us()
        if at_us < receiver.arrives_us:
            at_us = receiver.arrives_us
        receiver.put(data, greeting, now_us, at_us)
        world.later((at_us if at_us > self.held_until_us else self.held_until_us) - now_us, receiver.arrive)

    def hold(self, for_us: int) -> None:
        """Nothing arrives for a while."""
        self.world.note(self.name, "held", f"{for_us // MS} ms")
        self.held_until_us = max(self.held_until_us, self.world.now_us + for_us)
        for end in (self.dialler, self.accepted):
            end.process.still_us = max(end.process.still_us, self.held_until_us)

    def release(self) -> None:
        """What was held arrives now."""
        self.held_until_us = self.world.now_us
        for end in (self.dialler, self.accepted):
            for _ in range(end.waiting()):
                self.world.later(0, end.arrive)

    def break_(self, why: str, closed_by: End | None = None, dead: Process | None = None) -> None:
        """Both ends hear of it, each in its own time, behind what still arrives."""
        if not self.whole:
            return
        self.whole = False
        self.closed_by = closed_by
        world = self.world
        self.broken_us = world.now_us
        world.note(self.name, "broken", why)
        cut = closed_by is None and (dead is None or world.happens(0.3))
        for end in (self.dialler, self.accepted):
            end.broken = True
            if end.process is dead:
                end.gone = True
                continue
            if cut:
                end.lose_tail(world.between(0, end.waiting()))
            if end is closed_by:
                wait_us = world.between(*_TURN_US)
            else:
                wait_us = max(0, end.arrives_us - world.now_us) + self.network.delay_us() + world.between(0, self._slow_to_hear_us)
            world.later(wait_us, end.process.deliver, end, end.down)
        self.network.wires.pop(self, None)


def _nothing(was_up: bool) -> None:
    pass


class Network:
    """All wires, and who listens where."""

    def __init__(self, world: World, delays_us: tuple[int, int]) -> None:
        self.world = world
        self._delay_us_min, self._delays = delays_us[0], delays_us[1] - delays_us[0] + 1
        self.wires: dict[Wire, None] = {}
        self._listeners: dict[Address, tuple[Process, Callable[[], Owner]]] = {}
        self._number = 0
        self._sent: deque[WholeFrame] = deque()

    def packed(self, frame: F, encode: Callable[[F], bytes]) -> bytes:
        """What is put on a wire for this frame."""
        data = encode(frame)
        if not self.world.whole_frames:
            return data
        whole = WholeFrame(data)
        whole.frame, whole.encode = frame, encode
        self._sent.append(whole)
        if len(self._sent) > REMEMBERED:
            self._sent.popleft().check("somebody, later,")
        return whole

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def delay_us(self) -> int:
        return self._delay_us_min + int(self.world.chance() * self._delays)

    def listen(self, address: Address, process: Process, owner: Callable[[], Owner]) -> None:
        """Whoever listened there before does not any more; the links it has stay."""
        self._listeners[address] = (process, owner)

    def ignore(self, address: Address, process: Process) -> None:
        """The process does not listen there any more."""
        found = self._listeners.get(address)
        if found is not None and found[0] is process:
            del self._listeners[address]

    def listens(self, address: Address) -> bool:
        found = self._listeners.get(address)
        return found is not None and found[0].alive

    def dial(self, process: Process, owner: Owner, address: Address, slow_to_hear_us: int = 2 * MS) -> Wire | None:
        """None: nobody listens.  A stopped process does: its kernel accepts."""
        found = self._listeners.get(address)
        if found is None or not found[0].alive:
            return None
        wire = Wire(self, process, owner, found[0], found[1](), slow_to_hear_us)
        self.wires[wire] = None
        return wire

    def of(self, process: Process) -> list[Wire]:
        return [wire for wire in self.wires if wire.dialler.process is process or wire.accepted.process is process]

    def died(self, process: Process) -> None:
        """The kernel closes the sockets of a process that is gone."""
        for wire in self.of(process):
            wire.break_("process died", dead=process)


class Dialler:
    """actors.links.LinkClient: keeps one link to an address, dials until it answers and again whenever it is lost."""

    def __init__(self, network: Network, process: Process, owner: Owner, address: Address) -> None:
        self._network = network
        self._process = process
        self._owner = owner
        self._address = address
        self._wait_us = RECONNECT_US[0]
        self._wire: Wire | None = None
        self._left = False

    def start(self) -> None:
        if self._left:
            return
        wire = self._network.dial(self._process, self._owner, self._address)
        if wire is None:
            self._again()
            return
        self._wire = wire
        wire.lost = self._lost
        wire.greet()
        self._process.after(GREETING_US, self._too_late, wire)

    def leave(self) -> None:
        """What it was linked with refuses it from now on."""
        self._left = True
        if self._wire is not None:
            self._wire.break_("leads no more")

    def send(self, data: bytes) -> None:
        if self._wire is not None and self._wire.dialler.up:
            self._wire.dialler.send(data)

    def hand_on(self, frame: F, encode: Callable[[F], bytes]) -> None:
        self.send(self._network.packed(frame, encode))

    def _too_late(self, wire: Wire) -> None:
        if not wire.dialler.up and not wire.dialler.gone:
            wire.dialler.close("no greeting in time")

    def _lost(self, was_up: bool) -> None:
        self._wire = None
        if was_up:
            self._wait_us = RECONNECT_US[0]
        self._again()

    def _again(self) -> None:
        self._process.after(self._wait_us, self.start)
        self._wait_us = min(self._wait_us * 2, RECONNECT_US[1])
