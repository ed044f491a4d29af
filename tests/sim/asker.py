"""A process's end of its link to one shard: actors.shard_client on virtual time.

The numbers are those of the shipped NumberedSender; requests, queries and beats go through the shipped codec.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from shards.frames import Answer, Ask, Beat, Entry, FeedTaken, FeedWant, Frame, Query, Refused, Reply, decode, encode
from shards.numbered import NumberedSender
from tests.sim.network import Dialler, End, Network, taken
from tests.sim.process import Process
from tests.sim.world import MS, SECOND

BEAT_US = 2 * SECOND
_BEAT = encode(Beat())


class ShardListener(Protocol):
    def shard_linked(self, shard: int) -> None: ...

    def shard_lost(self, shard: int) -> None: ...

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None: ...

    def shard_told(self, shard: int, frame: Frame) -> None: ...


class Asker:
    def __init__(self, network: Network, process: Process, shard: int, listener: ShardListener) -> None:
        self.shard = shard
        self.sender = NumberedSender()
        self._process = process
        self._listener = listener
        self._ids: deque[int] = deque()
        self._dialler = Dialler(network, process, self, ("shard", shard))

    def start(self) -> None:
        self._dialler.start()
        self._beat()

    def leave(self) -> None:
        """The link breaks, and is not made again."""
        self._dialler.leave()

    @property
    def linked(self) -> bool:
        return self.sender.connected

    # ------------------------------------------------------------------ asking

    def ask(self, id: int, entries: list[Entry]) -> None:
        self._ids.append(id)
        self.sender.send(entries)
        self._write()

    def query(self, id: int, ask: Ask) -> None:
        self._dialler.hand_on(Query(id, ask), encode)

    def feed(self, frame: FeedWant | FeedTaken) -> None:
        self._dialler.hand_on(frame, encode)

    def _write(self) -> None:
        for request in self.sender.ready(self._process.world.now_ms):
            self._dialler.hand_on(request, encode)

    def _beat(self) -> None:
        self._dialler.send(_BEAT)
        self._process.after(BEAT_US, self._beat)

    # ------------------------------------------------------------------ Owner

    def link_up(self, end: End) -> None:
        self.sender.linked()
        self._listener.shard_linked(self.shard)
        self._write()

    def link_down(self, end: End) -> None:
        self.sender.unlinked()
        self._listener.shard_lost(self.shard)

    def link_frame(self, end: End, data: bytes) -> None:
        frame = taken(data, decode)
        self._process.world.note(self._process.name, f"<shard {self.shard}", frame, data)
        if isinstance(frame, Answer):
            # The shell closes the link when this raises; between our own parts that is a fault, so it is not caught here.
            if self.sender.answered(frame.number) is not None:
                self._listener.shard_replied(self.shard, self._ids.popleft(), frame.replies)
                self._write()
        elif isinstance(frame, Refused):
            self.sender.refused(frame.number, self._process.world.now_ms + frame.retry_ms)
            self._process.after(frame.retry_ms * MS + 10 * MS, self._write)
        else:
            self._listener.shard_told(self.shard, frame)
        self.sender.check()
