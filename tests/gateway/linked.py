"""Several gateway cores, linked with each other and with the same homes.  Frames between gateways go through the real codec and
wait on their link until a test lets them arrive."""

from __future__ import annotations

from collections import deque

from gateway.events import Event, FromPeer, FromShard, PeerLinked, PeerLost, Replied
from gateway.frames import Forward, decode, encode
from gateway.options import Options
from shards.frames import Live
from tests.gateway.scripted import Shell


class Linked:
    """The link from gateway i to gateway j has the number j + 1 at i."""

    def __init__(self, count: int, options: Options | None = None) -> None:
        self.shells = [Shell(options, name=f"g{index + 1}") for index in range(count)]
        self.wires: dict[tuple[int, int], deque[bytes]] = {}
        self.forwards: list[tuple[int, int, Forward]] = []
        for shell in self.shells:
            shell.homes = self.shells[0].homes
        for here, shell in enumerate(self.shells):
            others = [other for other in range(count) if other != here]
            self.wires |= {(here, other): deque() for other in others}
            shell.turn(*[PeerLinked(other + 1, f"g{other + 1}") for other in others])
        self.settle()

    def __getitem__(self, index: int) -> Shell:
        return self.shells[index]

    def send_off(self) -> None:
        """What the gateways want to send to each other gets onto its link."""
        for here, shell in enumerate(self.shells):
            for link, frame in shell.to_peer:
                if (here, link - 1) in self.wires:
                    self.wires[here, link - 1].append(encode(frame))
                    if isinstance(frame, Forward):
                        self.forwards.append((here, link - 1, frame))
            shell.to_peer.clear()

    def arrive(self, here: int, there: int, count: int = 1_000_000) -> None:
        """The oldest frames of one link arrive, in one turn of their taker."""
        self.send_off()
        wire = self.wires[here, there]
        frames = [decode(wire.popleft()) for _ in range(min(count, len(wire)))]
        self.shells[there].turn(*[FromPeer(here + 1, frame) for frame in frames])

    def settle(self) -> None:
        """Everything arrives, and what follows from it."""
        self.send_off()
        while any(self.wires.values()):
            for (here, there), wire in self.wires.items():
                if wire:
                    self.arrive(here, there)
            self.send_off()

    def answer(self, index: int, count: int = 1_000_000) -> None:
        """The shards answer the oldest requests of one gateway; all are told whose connection is not the newest any more."""
        shell = self.shells[index]
        events: list[Event] = []
        for _ in range(min(count, len(shell.requests))):
            request = shell.requests.popleft()
            replies = [shell.homes.reply(request.shard, entry) for entry in request.entries]
            events.append(Replied(request.shard, request.id, replies))
        told, shell.homes.told = shell.homes.told, []
        shell.turn(*events)
        for shell in self.shells:
            shell.turn(*[FromShard(shard, frame) for shard, frame in told])

    def will(self, message: Live) -> None:
        """The shard tells every gateway of a message that entered there."""
        for shell in self.shells:
            shell.turn(FromShard(0, message))

    def die(self, index: int) -> None:
        """A gateway is gone with all that it held."""
        for here, there in list(self.wires):
            if index in (here, there):
                del self.wires[here, there]
        for other, shell in enumerate(self.shells):
            if other != index:
                shell.turn(PeerLost(index + 1))
