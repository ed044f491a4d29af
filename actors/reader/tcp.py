"""The sockets of the reader: one thread that accepts, one for each connection, and an end to all of them.

What is said on a connection is not known here. TLS, when there is any, is shaken in the thread of its connection, so that somebody who
does not answer is in nobody's way; who speaks plainly to a reader with TLS is told so, plainly, and nothing else.

Always holds: at most `connections_max` conversations at a time; who comes beyond that is told so; after `stop` no thread of a connection
has a socket that it could wait for.
"""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable

import structlog

from holdfast_spark.protocol import WAIT_S, Code, Refused, Wire, WireError

STALL_S = 120.0
"""Somebody who takes nothing of what is sent, or stops within a frame, is given up after this; a Spark task may write a file meanwhile."""
RETRY_AFTER_S = 5
REFUSING_MAX = 16
JOIN_S = 5.0
_PLAIN = b"\0"
"""What a hello without TLS begins with, as it is short; one of TLS begins with 22."""
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))

log = structlog.get_logger(__name__)
Converse = Callable[[Wire], None]


class Doors:
    """Life cycle: made -> open -> stopped."""

    def __init__(self, host: str, port: int, converse: Converse, connections_max: int, tls: ssl.SSLContext | None = None) -> None:
        """converse: what is said on one connection; it ends when that returns, and whatever it raises ends that connection alone."""
        self._host = host
        self._port = port
        self._converse = converse
        self._tls = tls
        self.connections_max = connections_max
        self._lock = threading.Lock()
        self._open: dict[int, tuple[socket.socket, threading.Thread]] = {}
        self._refusing = 0
        self._listening: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self._stopped = False
        self._idle_since = time.monotonic()

    def open(self) -> int:
        """Listen; the port, which may have been any free one. Raises OSError."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.create_server((self._host, self._port), family=family, backlog=128)
        self._listening = listening
        self._accepting = threading.Thread(target=self._accept, args=(listening,), name="accept", daemon=True)
        self._accepting.start()
        return int(listening.getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._open)

    @property
    def idle_s(self) -> float:
        """How long there has been no connection; 0 while there is one."""
        with self._lock:
            return 0.0 if self._open else time.monotonic() - self._idle_since

    @property
    def ended(self) -> bool:
        """Nobody accepts any more, though nobody asked for that."""
        return not self._stopped and self._accepting is not None and not self._accepting.is_alive()

    def stop(self) -> None:
        self._stopped = True
        if self._listening is not None:
            # Closing it alone would leave a thread in accept.
            _shut(self._listening)
            self._listening.close()
        with self._lock:
            open_now = list(self._open.values())
        for sock, _ in open_now:
            _shut(sock)
        deadline = time.monotonic() + JOIN_S
        for _, thread in open_now:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------------ threads

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, peer = listening.accept()
            except OSError as error:
                if self._stopped or error.errno in (errno.EBADF, errno.EINVAL):
                    return
                # Too many open files, or somebody was gone before we looked: the next one may be fine.
                log.warning("reader.accept_failed", cause=error.strerror)
                time.sleep(0.1)
                continue
            self._take(sock, f"{peer[0]}:{peer[1]}")

    def _take(self, sock: socket.socket, peer: str) -> None:
        with self._lock:
            if not self._begun(sock, peer):
                sock.close()

    def _begun(self, sock: socket.socket, peer: str) -> bool:
        """Whether a thread has the connection now. Under the lock: who stops waits for threads that have begun."""
        if self._stopped:
            return False
        serves = len(self._open) < self.connections_max
        if not serves and self._refusing >= REFUSING_MAX:
            return False
        thread = (
            threading.Thread(target=self._serve, args=(sock, peer), name=f"reader {peer}", daemon=True)
            if serves
            else threading.Thread(target=self._refuse, args=(sock,), name="refuse", daemon=True)
        )
        try:
            thread.start()
        except RuntimeError as error:
            # The system gives no more threads; those that are there go on, and whoever came may come again.
            log.warning("reader.accept_failed", cause=str(error))
            return False
        if serves:
            self._open[id(sock)] = (sock, thread)
        else:
            self._refusing += 1
        return True

    def _serve(self, sock: socket.socket, peer: str) -> None:
        wrapped = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            wrapped = self._wrapped(sock)
            with self._lock:
                # The former is no socket any more, and a stop would shut nothing.
                self._open[id(sock)] = (wrapped, threading.current_thread())
                stopped = self._stopped
            if not stopped and self._is_shaken(wrapped):
                self._converse(Wire(wrapped, STALL_S))
        except (WireError, OSError) as error:
            # Nobody has to say good-bye: a task that has enough closes its socket.
            log.debug("reader.connection_ended", peer=peer, cause=str(error))
        except Exception:  # Ours, and of this connection alone.
            log.error("reader.connection_failed", peer=peer, exc_info=True)
        finally:
            _close(wrapped)
            with self._lock:
                self._open.pop(id(sock), None)
                self._idle_since = time.monotonic()

    def _wrapped(self, sock: socket.socket) -> socket.socket:
        """In TLS, where there is any and the other side begins with it. Raises OSError."""
        if self._tls is None:
            return sock
        sock.settimeout(WAIT_S)
        if sock.recv(1, socket.MSG_PEEK) == _PLAIN:
            return sock
        return self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def _is_shaken(self, wrapped: socket.socket) -> bool:
        """False: it is plain where TLS is spoken, and was told so. Raises WireError, OSError."""
        if isinstance(wrapped, ssl.SSLSocket):
            wrapped.settimeout(WAIT_S)
            wrapped.do_handshake()
        elif self._tls is not None:
            _tell(wrapped, Refused(Code.REQUEST, "the reader speaks TLS, and whoever connected does not; wanted is option tls=true"))
            return False
        return True

    def _refuse(self, sock: socket.socket) -> None:
        wrapped = sock
        try:
            wrapped = self._wrapped(sock)
            if self._is_shaken(wrapped):
                found = f"the reader has {self.connections_max} connections, which is as many as pipeline.max_connections allows"
                _tell(wrapped, Refused(Code.BUSY, found, {"retry_after": RETRY_AFTER_S}))
        except (WireError, OSError):
            pass
        finally:
            _close(wrapped)
            with self._lock:
                self._refusing -= 1


def tls_context(cert: str, key: str) -> ssl.SSLContext | None:
    """None without a certificate. Raises OSError, which ssl.SSLError is too."""
    if not cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    return context


def _tell(sock: socket.socket, refused: Refused) -> None:
    """The last that is said. Raises WireError, OSError."""
    sock.settimeout(WAIT_S)
    Wire(sock).send_json(refused.as_json())
    # What the other side has sent meanwhile must be taken, or closing would take our answer from it.
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(1.0)
    while sock.recv(4096):
        pass


def _shut(sock: socket.socket) -> None:
    try:
        # Of TLS the lower half alone: its thread would go on plainly otherwise.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # It is over already.


def _close(sock: socket.socket) -> None:
    try:
        sock.close()
    except OSError:
        pass  # It is over already.
