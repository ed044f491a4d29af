"""How a command or a session on this machine gets a reader: asks for one, waits until it listens, says where.

It looks at files only, and imports no Ray. Errors meant for people are NotReached, one sentence each.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import NamedTuple

from actors.asking import NotReached, running
from actors.processes import alive
from actors.reader.keeping import want
from actors.reader.options import reader_options
from actors.snapshot import settings_in_force
from actors.topology import PIPELINE, Topology, member_name, read_announcements

WITHIN_S = 30.0
LOOK_EVERY_S = 0.05
_CONNECT_S = 2.0
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Address(NamedTuple):
    """Where the reader listens, as this machine reaches it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def demand(data_dir: Path, within: float = WITHIN_S) -> Address:
    """A reader of the broker in this data directory, which answers, and does so for `pipeline.idle_stop` if nobody connects.

    Raises NotReached: the broker does not run, its configuration wants no reader, or none came up in these seconds.
    """
    topology = running(data_dir)
    if reader_options(settings_in_force(topology)).when == "never":
        raise NotReached(f'the broker in {data_dir} has no reader, because its configuration says pipeline.reader = "never"')
    want(topology.run_dir)
    deadline = time.monotonic() + within
    while (found := _listening(topology)) is None:
        if time.monotonic() > deadline:
            raise NotReached(f"the reader of the broker in {data_dir} did not come up within {within:.0f} s{_why(topology)}")
        time.sleep(LOOK_EVERY_S)
        # Again, as one that was about to end may have taken it away.
        want(topology.run_dir)
    return found


def certificate(data_dir: Path) -> str:
    """Path of the certificate that this reader shows, by which it is known wherever it is reached; empty: it speaks no TLS.

    Raises NotReached.
    """
    return reader_options(settings_in_force(running(data_dir))).tls_cert


def _listening(topology: Topology) -> Address | None:
    for each in read_announcements(topology.run_dir):
        if each.announcement.role != "reader" or not alive(each.process):
            continue
        for listener in each.announcement.listeners:
            if listener.kind == PIPELINE:
                address = Address(_ANYWHERE.get(listener.host, listener.host), listener.port)
                if _answers(address):
                    return address
    return None


def _answers(address: Address) -> bool:
    try:
        socket.create_connection(address, _CONNECT_S).close()
    except OSError:
        return False
    return True


def _why(topology: Topology) -> str:
    """What it says of itself."""
    path = topology.run_dir / f"{member_name('reader', 0)}.error"
    try:
        return f": {path.read_text(encoding='utf-8')}"
    except OSError:
        return f"; the logs are in {topology.log_dir}"
