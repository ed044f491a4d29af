"""The shard actor of one of several sites: the copy of a shard, its replica, and the shard itself while this site leads it.

    follows     hears the leader; refuses gateways, session actors and other shards with a sentence that says who leads
    leads       the replica has said Serve: the shard is opened on the data engine, and serves until the process ends

Who is deposed while it serves ends its process, as it has told others and itself what may never be committed; Ray starts it again, and it
follows.  A copy that nobody counts on any more is erased, and the process goes on with a new and empty one, which is another replica.

Always holds: nobody but other copies is heard while this site does not lead; the shard is open at most once in a process.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.clocks import read_clocks, tell_steady
from actors.fatal import die, dies_with
from actors.links import Link, LinkServer
from actors.pump import settle_gc
from actors.register.chosen import asked_register
from actors.replica.copy import FORMER, Copy, erase_copy, open_copy, put_aside
from actors.replica.draining import asked_heir, heir, is_drained
from actors.replica.former import told_of_former
from actors.replica.leading import LeadingShard
from actors.replica.naming import keep_named
from actors.replica.peers import ROLE, Incoming, Peers
from actors.replica.shell import ReplicaShell, Told
from actors.replica.status import Status
from actors.sites.following import Following, begin_anew
from actors.sites.keys import copy_key, shard_key
from actors.sites.whereabouts import SeveralSites, shard_listens
from actors.snapshot import settings_in_force
from actors.topology import Announcement, Health, Topology, announce, incarnation_of, member_name
from actors.wire import Wire
from config.schema import Config
from shards.backends import check_backend, open_backend
from shards.clock import AgeClock, AgeMark
from shards.engine import HOME_FAMILY, Engine, StoreFailed, StoreFull, StoreInUse
from shards.housekeeping import AGE_ROW
from shards.replication.bounds import RETAINED, Retained
from shards.replication.configuration import Configuration, site_of
from shards.replication.events import Committed, Dismissed, HandOver, Serve, SteppedDown, Superseded
from shards.replication.membership import former
from shards.replication.register import Register
from shards.replication.replica import Replica
from shards.steady import WALL_ROW, SteadyClock, WallRow

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

OPEN_RETRY_S = 1.0
LOOK_S = 0.1
EVERY = 10
"""Looks."""
COPY = "copy"
"""The kind of alarm."""

log = structlog.get_logger(__name__)


class ReplicaServer:
    """If a request is answered, its effect is on the disk of every copy in sync, and of a majority.  If it is not, it may or may not have
    happened: whoever asked sends it again under the same number, and it happens once."""

    def __init__(self, topology: Topology, index: int, register: Register | None = None, retained: Retained = RETAINED) -> None:
        """register: None: the one that the settings ask for."""
        self._topology = topology
        self._asked = register
        self._index = index
        self._retained = retained
        self._started: Announcement | None = None
        self._leading: LeadingShard | None = None
        self._leads_since_s = 0.0
        self._serves = False
        """It is open."""
        self._serving: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._looks = 0
        self._age_row: bytes | None = None
        self._anew = ""
        """Why the former copy of this site is still counted on."""
        self._remembered: Configuration | None = None

    # ------------------------------------------------------------------ the server

    async def start(self) -> Announcement:
        """Waits, loudly, as long as the copy cannot be opened for lack of room."""
        if self._started is not None:
            return self._started
        topology = self._topology
        self._config = settings_in_force(topology)
        self._wire = Wire.of(topology)
        self._where = SeveralSites(topology)
        await self._place_taken()
        self._following = Following(self._where, self._moved, forced=self._forced)
        self._status = Status(topology.run_dir, self._index)
        async with AsyncExitStack() as opened:
            await self._open(opened)
            started = Announcement("shard", member_name("shard", self._index), os.getpid())
            announce(topology, started)
            opened.pop_all()
        self._started = started
        replica = self._shell.replica
        log.info("replica.started", shard=self._index, rid=replica.rid, applied=replica.applied, last=replica.last)
        return started

    async def _open(self, opened: AsyncExitStack) -> None:
        """opened: closes what was opened, the last first."""
        name = incarnation_of(self._topology, "shard", self._index)
        self._register: Register = self._asked or asked_register(self._topology, self._wire, name)
        opened.push_async_callback(self._register.close)
        await self._begin(await self._open_copy())
        opened.push_async_callback(self._leave)
        opened.callback(self._following.stop)
        self._following.start()
        self._look()
        opened.callback(self._timer.cancel)
        settle_gc()

    async def stop(self) -> None:
        """Whoever is linked is cut off; what was taken is committed if the others are there; the copy is closed."""
        if self._started is None:
            return
        self._started = None
        self._following.stop()
        self._timer.cancel()
        for task in (self._serving, self._renewing):
            if task is not None:
                task.cancel()
        if self._leading is not None and self._serves:
            # Other copies stay linked: without them nothing is committed.
            self._serves = False
            await self._leading.end("this process stops")
            await self._shell.hand_over()
        await self._leave()
        await self._register.close()
        log.info("replica.stopped", shard=self._index)

    async def health(self) -> Health:
        return Health(self._started is not None, "")

    def reconfigure(self, config: Config) -> None:
        self._config = config
        if self._leading is not None and self._serves:
            self._leading.reconfigure(config)

    def measure(self, sheet: Sheet) -> None:
        if self._leading is not None and self._serves:
            self._leading.measure(sheet)

    # ------------------------------------------------------------------ the copy

    async def _place_taken(self) -> None:
        """The site process has said where this site is (actors.sites.server).  Of a data directory that was copied it does not say it while
        the other one is up: the replicas of both would be the same, and one of them lacks what the other has acknowledged."""
        if not self._where.known.sites:
            log.warning("replica.waits_for_its_site", shard=self._index)
        while not self._where.known.sites:
            await asyncio.sleep(LOOK_S)
            self._where.look()

    async def _open_copy(self) -> Copy:
        topology = self._topology
        while True:
            try:
                return open_copy(topology.store_path(self._index), self._index, topology.incarnation, topology.site, self._open_engine)
            except (StoreFull, StoreInUse) as error:
                log.error("replica.cannot_open_yet", shard=self._index, cause=str(error))
                await asyncio.sleep(OPEN_RETRY_S)

    def _open_engine(self, path: str) -> Engine:
        """What is damaged is not mended: the others have what it had."""
        messages = self._config.durable_storage.messages
        if check_backend(messages.backend) != "rocksdb":
            raise StoreFailed(f"backend {messages.backend!r} has no checkpoints: sites that share their shards take rocksdb")
        return open_backend(messages.backend, path, "strict", int(messages.block_cache))

    async def _begin(self, copy: Copy) -> None:
        self._peers = Peers(copy.rid, lambda site: self._where.known.replica(site, self._index), self._wire)
        self._shell = ReplicaShell(
            self._index, copy, self._register, shard_key(self._index), self._peers, self, self._retained, self._took, self._stored
        )  # fmt: skip
        self._incoming = Incoming(self._shell.received)
        self._server = LinkServer(shard_listens(self._topology, self._index), self, self._wire, "shard", copy.rid)
        try:
            await self._server.start()
        except OSError:
            # The next attempt opens it anew; while this one has it open, it could not.
            await self._shell.close()
            copy.close()
            raise
        self._naming = asyncio.get_running_loop().create_task(
            keep_named(self._register, copy_key(self._index, self._topology.site), copy.rid)
        )  # fmt: skip
        dies_with(self._naming, "naming the copy in the register")
        self._shell.start()

    async def _leave(self) -> None:
        self._naming.cancel()
        await self._server.stop()
        await self._shell.close()
        self._shell.copy.close()

    async def _renew(self, kept: bool, why: str) -> None:
        """Nobody counts on this copy any more.  kept: what it holds may be nowhere else."""
        copy = self._shell.copy
        log.warning("copy.dismissed", shard=self._index, rid=copy.rid, cause=why)
        await self._leave()
        await asyncio.to_thread(put_aside, copy.path, FORMER) if kept else await asyncio.to_thread(erase_copy, copy.path)
        await self._begin(await self._open_copy())

    def _begin_anew(self, kept: bool, why: str) -> None:
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew(kept, why))
            self._renewing.add_done_callback(self._renewed)

    # ------------------------------------------------------------------ what the replica says

    def told(self, effect: Told) -> None:
        match effect:
            case Serve(epoch, position):
                log.info("shard.leads", shard=self._index, epoch=epoch, position=position)
                self._leads_since_s = time.monotonic()
                self._leading = LeadingShard(self._topology, self._index, self._config, self._shell, position)
                self._serving = asyncio.get_running_loop().create_task(self._serve(self._leading))
                self._serving.add_done_callback(self._served)
            case Committed():
                if self._leading is not None:
                    self._leading.told(effect)
            case SteppedDown(reason):
                self._status.tell(self._shell.replica)
                # One that is about to stop has asked for it.
                if self._leading is not None and self._started is not None:
                    die("shard.deposed", shard=self._index, cause=f"{reason}; it begins anew and follows")
            case Dismissed():
                replica = self._shell.replica
                if replica.last or replica.applied:
                    self._begin_anew(False, "the register says that it is no replica and is not becoming one")
            case Superseded(incarnation):
                replica = self._shell.replica
                kept = bool(replica.last or replica.applied)
                why = f"leadership was forced elsewhere, and this copy is of before incarnation {incarnation}"
                self._begin_anew(kept, why + (f"; it is put aside as {self._shell.copy.path / FORMER}" if kept else ""))

    async def _serve(self, leading: LeadingShard) -> None:
        await leading.open(self._wire, self._where)
        self._serves = True
        settle_gc()
        log.info("shard.started", shard=self._index, generations=leading.generations)

    def _served(self, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            die("shard.not_opened", shard=self._index, cause=str(error) or repr(error))

    def _renewed(self, done: asyncio.Task[None]) -> None:
        self._renewing = None
        if not done.cancelled() and (error := done.exception()) is not None:
            die("copy.not_renewed", shard=self._index, cause=str(error) or repr(error))

    def _took(self, seconds: float) -> None:
        if self._leading is not None:
            self._leading.synced(seconds)

    def _stored(self) -> int:
        return self._leading.stored if self._leading is not None and self._serves else 0

    # ------------------------------------------------------------------ now and then

    def _moved(self) -> None:
        self._peers.look_again()
        if self._leading is not None and self._serves:
            self._leading.look_again()

    def _forced(self, shards: list[int]) -> None:
        """Who does not lead has talked to copies of its own shard alone."""
        if self._leading is not None and (others := [shard for shard in shards if shard != self._index]):
            begin_anew(others)

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        if self._renewing is not None:
            return
        replica = self._shell.replica
        self._status.tell(replica)
        if replica.cfg is not None and replica.cfg is not self._remembered:
            self._remembered = replica.cfg
            self._shell.copy.log.remember(replica.cfg)
        self._looks += 1
        if self._looks % EVERY:
            return
        if self._leading is None:
            self._tell_steady()
            self._look_for_former(replica)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """When this site is drained, or the plan has somebody else lead."""
        run_dir, replica = self._topology.run_dir, self._shell.replica
        up = [site for site, at in self._where.known.sites.items() if at.up]
        if is_drained(run_dir, self._leads_since_s):
            to = heir(replica, up)
        else:
            to = asked_heir(run_dir, self._index, self._leads_since_s, up) if replica.serving else None
        if to is not None:
            log.info("shard.handed_over", shard=self._index, to=to)
            self._shell.bring(HandOver(to))

    def _look_for_former(self, replica: Replica) -> None:
        """A copy that was made anew takes the place of the former one of its site by itself; it is an alarm until it has."""
        cfg = replica.cfg
        gone = None if cfg is None else former(cfg, replica.rid)
        cause = "" if cfg is None or gone is None else told_of_former(self._index, cfg, gone)
        if cause == self._anew:
            return
        self._anew = cause
        name = member_name("shard", self._index)
        if cause:
            log.error("copy.another", shard=self._index, rid=replica.rid, cause=cause)
            raise_alarm(self._topology.run_dir, Alarm(name, COPY, cause))
        else:
            clear_alarm(self._topology.run_dir, name, COPY)
            log.info("copy.counted", shard=self._index, rid=replica.rid)

    def _tell_steady(self) -> None:
        """Steady time of the store, for the gateways of this site, as its rows have it."""
        engine = self._shell.copy.engine
        try:
            row, wall = engine.get(HOME_FAMILY, AGE_ROW), engine.get(HOME_FAMILY, WALL_ROW)
        except (StoreFailed, LookupError, AttributeError):
            return  # A checkpoint is taking its place.
        if row is None or row == self._age_row:
            return
        now, mark = read_clocks(), AgeMark.decode(row)
        age_ms = AgeClock(mark, now).age_ms(now)
        steady = SteadyClock(WallRow.decode(wall) if wall else None, mark, age_ms, now.wall_ms)
        try:
            tell_steady(self._topology.run_dir, self._index, steady.steady_ms(age_ms), now)
        except OSError:
            return  # A full disk, which the status has told of: again at the next look.
        self._age_row = row

    # ------------------------------------------------------------------ LinkOwner

    def link_up(self, link: Link) -> None:
        if link.peer_role == ROLE:
            self._incoming.link_up(link)
        elif self._leading is not None and self._serves:
            self._leading.link_up(link)
        else:
            link.close(self._refusal())

    def link_frame(self, link: Link, data: bytes) -> None:
        if link.peer_role == ROLE:
            self._incoming.link_frame(link, data)
        elif self._leading is not None and self._serves:
            self._leading.link_frame(link, data)

    def link_down(self, link: Link) -> None:
        if link.peer_role == ROLE:
            self._incoming.link_down(link)
        elif self._leading is not None and self._serves:
            self._leading.link_down(link)

    def _refusal(self) -> str:
        leader = self._shell.replica.leader
        if leader is None:
            return f"nobody is known to lead shard {self._index} now"
        if leader == self._shell.copy.rid:
            return f"shard {self._index} is being opened"
        return f"shard {self._index} is led by site {site_of(leader)}"
