"""A loopback proxy between Spark and the reader that cuts a connection after so many bytes of the answer.

It reads nothing of what passes and changes none of it. Where the reader listens is asked anew for each connection, so a reader that was
killed and came back elsewhere is found, while what Spark knows stays the same. Threads, since the loop beside it has publishers to serve.

What always holds: before a cut exactly so many bytes pass, counted from where it was asked for (after a reset the other end may have
got fewer); after ``close`` no thread and no socket of it is left.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

CHUNK = 65536
CONNECT_S = 60.0
_RESET = struct.pack("ii", 1, 0)

Address = tuple[str, int]


@dataclass(slots=True)
class Cut:
    """Asked for → done. ``reset``: with RST instead of FIN."""

    after: int
    reset: bool = False
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False, slots=True)
class _Pair:
    """One connection, both sides."""

    client: socket.socket
    reader: socket.socket

    def end(self, *, reset: bool = False) -> None:
        """Wake whoever reads. With ``reset`` the client's side is left open for the close that makes it an RST."""
        with suppress(OSError):
            self.reader.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            if reset:
                self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.client.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)


class CuttingProxy:
    def __init__(self, target: Callable[[], Address | None]) -> None:
        """target: where the reader listens now, None when it is away; called in a thread of the proxy."""
        self._target = target
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        self._cut: Cut | None = None
        self._passed = 0
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._faults: list[BaseException] = []
        """What ended a thread that should not have ended so; told at the close."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listening.getsockname()[:2]
        self.connections = 0
        self.cuts = 0
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._accepting.start()

    def cut_after(self, count: int, *, reset: bool = False) -> Cut:
        """Let so many bytes of answers pass, over all connections together, and cut the one that has more. One cut at a time."""
        with self._lock:
            assert self._cut is None, "one cut at a time"
            self._passed = 0
            self._cut = Cut(count, reset)
            return self._cut

    def call_off(self) -> None:
        """Cut nothing."""
        with self._lock:
            self._cut = None

    def close(self) -> None:
        self._closing = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.end()
        self._accepting.join()
        for thread in self._threads:
            thread.join()
        if self._faults:
            raise self._faults[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- threads

    def _accept(self) -> None:
        try:
            self._keep_accepting()
        except BaseException as error:
            self._faults.append(error)

    def _keep_accepting(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            target = self._target()
            try:
                if target is None:
                    raise ConnectionRefusedError("the reader is away")
                reader = socket.create_connection(target, CONNECT_S)
            except OSError:
                client.close()
                continue
            for each in (client, reader):
                each.settimeout(None)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(client, reader)
            with self._lock:
                self._pairs.add(pair)
                self.connections += 1
            self._threads = [each for each in self._threads if each.is_alive()]
            for work in (self._asks, self._answers):
                thread = threading.Thread(target=work, args=(pair,), name="proxy", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _asks(self, pair: _Pair) -> None:
        """Spark to the reader, as it comes."""
        with suppress(OSError):
            while data := pair.client.recv(CHUNK):
                pair.reader.sendall(data)
        with suppress(OSError):
            pair.reader.shutdown(socket.SHUT_WR)

    def _answers(self, pair: _Pair) -> None:
        """The reader to Spark, up to a cut; then neither is left."""
        reset = False
        try:
            with suppress(OSError):
                while data := pair.reader.recv(CHUNK):
                    passed, cut = self._within(len(data))
                    pair.client.sendall(data[:passed])
                    if cut is not None:
                        reset = cut.reset
                        break
            pair.end(reset=reset)
        except BaseException as error:
            self._faults.append(error)
        with self._lock:
            self._pairs.discard(pair)
        for each in (pair.client, pair.reader):
            try:
                each.close()
            except OSError as error:
                self._faults.append(error)

    def _within(self, count: int) -> tuple[int, Cut | None]:
        """How many of these bytes pass, and the cut that comes after them."""
        with self._lock:
            cut = self._cut
            self._passed += count
            if cut is None or self._passed <= cut.after:
                return count, None
            self._cut = None
            self.cuts += 1
            cut.done.set()
            return count - (self._passed - cut.after), cut
