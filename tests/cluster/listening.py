"""Where processes listen, as the kernel has it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"


def listening(pids: Iterable[int]) -> dict[int, set[tuple[str, int]]]:
    """TCP addresses and ports at which each of these processes listens; those that listen nowhere are left out."""
    sockets: dict[str, set[int]] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{entry}")
                    if target.startswith("socket:["):
                        sockets.setdefault(target[8:-1], set()).add(pid)
    found: dict[int, set[tuple[str, int]]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN:
                for pid in sockets.get(fields[9], ()):
                    found.setdefault(pid, set()).add(_place(fields[1]))
    return found


def _place(text: str) -> tuple[str, int]:
    """The kernel writes an address as words of its own byte order."""
    address, _, port = text.partition(":")
    words = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
    found = ipaddress.ip_address(words)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found), int(port, 16)
