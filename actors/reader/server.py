"""The reader process: links to the shards on its loop, and threads for whoever reads (docs/reader.md).

Runs below the others in priority, and on no path that serves clients: when it is killed, Ray starts it again, it listens where it did,
and those who read begin anew where they were.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from actors.access.watch import AccessWatch
from actors.fatal import die, dies_with
from actors.reader.access import Keys
from actors.reader.copies import CopiesHere
from actors.reader.keeping import let_go
from actors.reader.limits import Pace, Slots
from actors.reader.options import ReaderOptions, reader_options
from actors.reader.shard_side import LinkSide
from actors.reader.tcp import Doors, tls_context
from actors.reader.token import own_token
from actors.reader.verbs import Desk
from actors.reader.views import Views
from actors.release import release
from actors.sites.whereabouts import SeveralSites
from actors.snapshot import settings_in_force
from actors.topology import PIPELINE, Announcement, Health, ListenerInfo, Topology, announce, member_name, write_whole
from config.schema import Config

NICE = 10
IDLE_LOOK_S = 0.5
_PORT_FILE = "reader.port"
_SCRATCH = "reader-scratch"
log = structlog.get_logger(__name__)


class ReaderServer:
    """Life cycle: made -> started -> stopped; a start that failed may be tried again."""

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._name = member_name("reader", index)
        self._started: Announcement | None = None
        self._options: ReaderOptions
        self._store = f"{topology.site}:{topology.incarnation}"
        self._where: SeveralSites | None = None

    async def start(self) -> Announcement:
        if self._started is not None:
            return self._started
        topology = self._topology
        loop = asyncio.get_running_loop()
        self._options = options = reader_options(settings_in_force(topology))
        tls = tls_context(options.tls_cert, options.tls_key)
        self._keys = Keys(own_token(topology.data_dir), options.tokens)
        self._slots, self._pace = Slots(options.max_scans), Pace(options.bytes_per_s)
        copies = None
        if topology.sites is not None:
            self._where = SeveralSites(topology)
            self._store = _named(self._where)
            copies = CopiesHere(topology.run_dir, topology.site)
        side = LinkSide(topology, loop)
        paths = [topology.engine_path(shard) for shard in range(topology.n_shards)]
        views = Views(paths, topology.run_dir / _SCRATCH, side, copies=copies)
        desk = Desk(self._store, release(), views, side, self._keys, self._slots, self._pace)
        doors = Doors(options.host, options.port or _port_before(topology.run_dir), desk.converse, options.max_connections, tls)
        self._access = AccessWatch(topology.run_dir, lambda _bundle, access: self._keys.judge(access))
        async with AsyncExitStack() as opened:
            # Links first: whoever finds the door open is answered, by the rules in force.
            opened.callback(views.close)
            opened.push_async_callback(side.stop)
            await side.start()
            opened.callback(self._access.stop)
            await self._access.start()
            port = doors.open()
            # Threads that wait for the loop are answered meanwhile.
            opened.push_async_callback(asyncio.to_thread, doors.stop)
            # Any free port was asked for: that one stays ours, as those who read know it.
            write_whole(topology.run_dir / _PORT_FILE, str(port))
            listener = ListenerInfo(0, PIPELINE, options.host, port, shared=False)
            started = Announcement("reader", self._name, os.getpid(), (listener,))
            announce(topology, started)
            self._closing = opened.pop_all()
        self._started, self._views, self._doors = started, views, doors
        self._looking = loop.create_task(self._look_around())
        dies_with(self._looking, "looking around")
        log.info("reader.started", host=options.host, port=port, tls=tls is not None)
        return self._started

    async def stop(self) -> None:
        if self._started is None:
            return
        self._started = None
        self._looking.cancel()
        (self._topology.run_dir / f"{self._name}.json").unlink(missing_ok=True)
        await self._closing.aclose()

    async def health(self) -> Health:
        if self._started is None:
            return Health(False, "")
        if self._doors.ended:
            return Health(False, "nobody accepts connections")
        doors = self._doors
        return Health(True, f"connections: {doors.connections}, idle_s: {doors.idle_s:.0f}")

    def reconfigure(self, config: Config) -> None:
        self._options = options = reader_options(config)
        self._slots.change(options.max_scans)
        self._pace.change(options.bytes_per_s)
        self._keys.change(options.tokens)
        self._doors.connections_max = options.max_connections

    async def _look_around(self) -> None:
        """Whoever ends the process sees that the file is gone (actors.reader.keeping)."""
        while True:
            await asyncio.sleep(IDLE_LOOK_S)
            if self._where is not None and self._where.look() and (store := _named(self._where)) != self._store:
                # Offsets that were made under the former one are of it for ever.
                die("reader.store_changed", cause=f"the sites share the store {store} now, and it was {self._store}")
            idle_s, options = self._doors.idle_s, self._options
            if options.when == "on demand" and let_go(self._topology.run_dir, idle_s, options.idle_stop_s):
                log.info("reader.idle", idle_s=round(idle_s, 1))


class StoreUnknown(Exception):
    """Said to whoever starts it; the start is tried again."""


def _named(where: SeveralSites) -> str:
    """Of the store that the sites share. Raises StoreUnknown."""
    if not where.known.store:
        raise StoreUnknown("this site has not taken its place among the others yet, so nobody knows which store it has")
    return where.known.store


def yield_to_others() -> None:
    """Every thread of this process, and all that come from them, after whoever else wants a core."""
    for thread in os.listdir("/proc/self/task"):
        try:
            os.setpriority(os.PRIO_PROCESS, int(thread), NICE)
        except ProcessLookupError:
            pass  # It has ended.


def _port_before(run_dir: Path) -> int:
    """Of this run; 0: there was none."""
    try:
        return int((run_dir / _PORT_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
