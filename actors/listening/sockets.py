"""Listening sockets: at an address that gateways share, at one of a gateway's own, or at a path."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

KEEPALIVE_AFTER_S = 120
KEEPALIVE_EVERY_S = 20
KEEPALIVE_PROBES = 3
"""A peer that is gone without a word, and that MQTT's keep alive does not ask for, is noticed after three minutes."""


class CannotListen(OSError):
    """One sentence: where, and why not."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


def listen_at(host: str, port: int, backlog: int, *, shared: bool) -> socket.socket:
    """shared: every gateway listens there, and the kernel deals connections out."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if listening.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accepted sockets have these of the one they came by, which costs nothing for each.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_AFTER_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
        listening.bind((host, port))
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise CannotListen(f"the port {port} on {host} cannot be used: {error.strerror}") from error
    return listening


def listen_on(path: str, mode: int, backlog: int) -> socket.socket:
    """A unix socket.  One that was left by a process that is gone is replaced; one that somebody answers at is not touched."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        # The file has no more permissions than these from its first moment; what the umask took away it gets afterwards.
        os.fchmod(listening.fileno(), mode)
        _remove_stale(path)
        listening.bind(path)
        os.chmod(path, mode)
        listening.listen(backlog)
    except CannotListen:
        listening.close()
        raise
    except OSError as error:
        listening.close()
        raise CannotListen(f"the socket {path} cannot be made: {error.strerror}") from error
    return listening


def inode_of(path: str) -> int:
    """Of the file at this path; 0: there is none."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def remove_own(path: str, inode: int) -> None:
    """The file of a unix socket that is not listened on any more.  One that somebody has put there since is left alone."""
    if inode and inode_of(path) == inode:
        Path(path).unlink(missing_ok=True)


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(f"the socket {path} cannot be made: something else is there, and it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        # Not to be waited for: one that is full of connections is one that somebody has.
        attempt.setblocking(False)
        try:
            attempt.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass
    raise CannotListen(f"the socket {path} cannot be made: another process listens there")
