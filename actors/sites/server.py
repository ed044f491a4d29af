"""The site process: keeps this site's place in the register, is linked with all other sites, and says who leads what.

Twice a second it looks into the register, and at what the replicas of this site say, and writes `sites.json` when something is different
(actors.sites.whereabouts); by that every process of this site dials.  It allocates the first copies, claims the steps of membership that a
leader cannot know of, and answers operators.  Nothing safe rests on it: while this process is away shards go on, and are taken over.

`sites.json` appears when this site has taken its place, or had it, at the same address, when it ran before; so a second data directory with
the same id gets none, and a site that starts while the register is away dials the others all the same.

Always holds: a register that does not answer changes nothing of what was told; it is an alarm, and a line of the log.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.datadir import FORMAT_VERSION_SITES
from actors.endpoints import Endpoint
from actors.fatal import die_of
from actors.inquiry.sites import Sites
from actors.links import LinkOwner, LinkServer
from actors.metrics.of_site import SiteFigures
from actors.register.chosen import Below, asked_register, owned_register, settings_of
from actors.register.linked import RegisterHost
from actors.register.local import LocalRegister
from actors.release import release
from actors.replica.draining import ask_to_drain, ask_to_hand_over
from actors.sites.allocating import allocate, allocated, restored
from actors.sites.changing import lost_steps
from actors.sites.claiming import CannotJoin, agree, be_let_in, check_restored, settle_format
from actors.sites.copies import CopyStatus, read_copies
from actors.sites.desk import ROLE as ASKS
from actors.sites.desk import Desk
from actors.sites.door import Door
from actors.sites.forcing import Around
from actors.sites.formats import KNOWN, Known, refusal
from actors.sites.keys import CLUSTER
from actors.sites.looking import Seen, look
from actors.sites.peers import ROLE as SITE
from actors.sites.peers import Peers, Served, probe, stop_all
from actors.sites.records import Cluster, RecordUnreadable, SiteRecord
from actors.sites.spreading import Spreading
from actors.sites.view import places, shown
from actors.sites.whereabouts import SITES_FILE, tell_sites
from actors.sites.whereabouts import Sites as Places
from actors.snapshot import settings_in_force
from actors.topology import Announcement, Health, Topology, announce, incarnation_of, member_name
from actors.wire import Wire
from config.register import standing
from config.schema import Config
from shards.replication.configuration import Configuration, site_of
from shards.replication.ports import RegisterAway

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

LOOK_S: Final = 0.5
DOWN_S: Final = 10.0
"""So long another site is down before that is an alarm: a restart is none."""
REGISTER: Final = "register"
DOWN: Final = "sites-down"
PLACE: Final = "site-taken"
SEEDS: Final = "sites-restored"
DISAGREES: Final = "cluster-record"
"""Kinds of alarms: the register does not answer; other sites are down; another one has this site's place; two come from backups; what the
register says of the cluster cannot be read, or is something else than the settings say."""


class SiteServer:
    """Life cycle: made -> listening -> placed in the register -> looking -> stopped."""

    def __init__(self, topology: Topology, index: int, *, look_s: float = LOOK_S, down_s: float = DOWN_S, knows: Known = KNOWN) -> None:
        plan = topology.sites
        assert plan is not None, "a site that stands alone has no site process"
        self._topology = topology
        self._name = member_name("site", index)
        self._instance = incarnation_of(topology, "site", index)
        self._look_s = look_s
        self._down_s = down_s
        # One that was restored from a backup has the id of that store.
        store = topology.site if topology.incarnation > 1 else secrets.token_hex(8)
        self._cluster = Cluster(topology.n_shards, plan.n_sites, plan.replication_factor, store, topology.incarnation)
        self._agreed = False
        """On a record of the cluster that nobody changes any more."""
        self._record = SiteRecord(
            topology.site, plan.host, plan.port, topology.n_gateways, socket.gethostname(), topology.incarnation, FORMAT_VERSION_SITES,
            release=release(), knows=knows,
        )  # fmt: skip
        self._wire = Wire.of(topology)
        self._owned: LocalRegister | None = None
        self._asked: Below | None = None
        self._server: LinkServer | None = None
        self._placed = False
        self._seen = Seen()
        self._copies: list[CopyStatus] = []
        self._peers = Peers(topology.site, self._wire, self._instance, self._tell)
        self._told: Places | None = None
        self._down_since: dict[str, float] = {}
        self._alarms: dict[str, str] = {}
        self._figures = SiteFigures()
        self._drained = False
        """Since this process was started."""
        self._spreads = True
        self._spreading = Spreading(topology.site)
        self._soon = asyncio.Event()
        self._announcement: Announcement | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger()

    # ------------------------------------------------------------------ what the host asks

    async def start(self) -> Announcement:
        """Raises CannotJoin, RegisterAway and what opening a port or the register raises; begun again it goes on where it was."""
        if self._announcement is not None:
            return self._announcement
        self._spreads = settings_in_force(self._topology).cluster.spread_leaders
        await self._listen()
        self._recall()
        register = self._asked
        assert register is not None
        seen = await look(register)
        check_restored(self._record, seen.sites, seen.shards)
        self._cluster = await be_let_in(register, self._cluster, self._record, self._is_up, begun=bool(seen.shards))
        self._seen = await look(register)
        self._placed = True
        self._peers.know(self._seen.sites)
        self._copies = await asyncio.to_thread(read_copies, self._topology.run_dir)
        self._tell()
        self._announcement = Announcement("site", self._name, os.getpid())
        announce(self._topology, self._announcement)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each) for each in (self._every(self._look_at_register), self._every(self._look_around))]
        return self._announcement

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peers.stop()
        if self._server is not None:
            await self._server.stop()
        if self._asked is not None:
            await self._asked.close()

    async def health(self) -> Health:
        if PLACE in self._alarms:
            return Health(True, self._alarms[PLACE])
        up = len(self.up() & frozenset(self._seen.sites))
        refused = [why for site in sorted(self._seen.sites) if (why := self._peers.refused(site))]
        return Health(self._placed, "; ".join([f"{up} of {len(self._seen.sites)} sites are up", *refused[:1]]))

    def reconfigure(self, config: Config) -> None:
        self._spreads = config.cluster.spread_leaders

    def measure(self, sheet: Sheet) -> None:
        self._figures.write(sheet, self._topology.site, self._seen, self.up(), self._copies, away=REGISTER in self._alarms)

    # ------------------------------------------------------------------ what the desk works with

    @property
    def register(self) -> Below | None:
        return self._asked if self._placed else None

    @property
    def replication_factor(self) -> int:
        return self._cluster.replication_factor

    def up(self) -> frozenset[str]:
        return self._peers.up() | {self._topology.site}

    def around(self) -> Around:
        now = asyncio.get_running_loop().time()
        down_s = {site: now - since for site, since in self._down_since.items()}
        return Around(self.up(), [*self._copies, *self._peers.copies()], down_s, time.time_ns() // 1_000_000)

    def info(self) -> Sites:
        said = standing(settings_of(self._topology), self._cluster.n_sites)
        if REGISTER in self._alarms:
            said += "; it does not answer, and what is shown is what it said last"
        copies = [*self._copies, *self._peers.copies()]
        up, refused, speaks = self._peers.up(), self._peers.refused, self._peers.speaks
        return shown(self._topology.site, self._cluster, self._seen, up, copies, said, refused, speaks)

    def nonce(self) -> str:
        return secrets.token_hex(8)

    def look_soon(self) -> None:
        self._soon.set()

    def drain(self) -> int:
        self._drained = True
        ask_to_drain(self._topology.run_dir)
        known = self._told
        return 0 if known is None else sum(known.leads_here(shard) for shard in known.leads)

    # ------------------------------------------------------------------ taking its place

    async def _listen(self) -> None:
        """First: whoever finds this site in the register has to find it here, and others may need the register that is here."""
        topology, plan = self._topology, self._topology.sites
        assert plan is not None
        if self._asked is None:
            self._owned = owned_register(topology)
            prefix = settings_of(topology).prefix
            self._asked = asked_register(topology, self._wire, self._instance) if self._owned is None else Below(self._owned, prefix)
        if self._server is None:
            owners: dict[str, LinkOwner] = {SITE: Served(topology.site, self._instance, self._rows), ASKS: Desk(self)}
            if self._owned is not None:
                owners["register"] = RegisterHost(self._owned)
            at = [Endpoint(path=topology.site_endpoint()), Endpoint(host=plan.host, port=plan.port)]
            server = LinkServer(at, Door(owners), self._wire, SITE, self._instance)
            await server.start()
            self._server = server

    def _recall(self) -> None:
        """What was told last: it is in the data directory too, and is of use if this site is still where it was."""
        run, remembered = self._topology.run_dir / SITES_FILE, self._topology.data_dir / SITES_FILE
        if run.exists():
            return
        try:
            found = Places.from_json(remembered.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            return
        own = found.sites.get(self._topology.site)
        known = found.format <= self._record.knows.newest
        if known and own is not None and (own.host, own.port) == (self._record.host, self._record.port):
            tell_sites(self._topology.run_dir, found)

    async def _is_up(self, record: SiteRecord) -> bool:
        answered = await probe(record, self._wire, self._instance)
        return answered not in ("", self._instance)

    def _rows(self) -> list[dict[str, Any]]:
        return [{**copy.row(), "drained": self._drained} for copy in self._copies]

    # ------------------------------------------------------------------ looking

    async def _every(self, turn: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await turn()
            except Exception as error:
                # Without this loop the site would go on deaf, and nobody would hear of it.
                die_of(error, turn.__name__)
            try:
                async with asyncio.timeout(self._look_s):
                    await self._soon.wait()
                self._soon.clear()
            except TimeoutError:
                pass

    async def _look_at_register(self) -> None:
        register = self._asked
        assert register is not None
        try:
            seen = await look(register)
            if self._agreed:
                seen = await self._settle_format(register, seen)
            else:
                await self._agree(register, seen)
            if not allocated(seen, self._cluster) and DISAGREES not in self._alarms:
                made = await allocate(register, seen, self._cluster, self.nonce)
                for shard, record in made.items():
                    self._log.info("shard.allocated", shard=shard, replicas=sorted(record.replicas))
            for change in lost_steps(seen, self._led_here, self.nonce):
                await register.cas(*change)
            await self._spread(register, seen)
        except RegisterAway as error:
            self._figures.register_failures += 1
            self._alarm(REGISTER, f"{error}. {standing(settings_of(self._topology), self._cluster.n_sites)}")
            return
        self._alarm(REGISTER, "")
        for sentence in set(seen.unreadable) - set(self._seen.unreadable):
            self._log.error("register.unreadable", cause=sentence)
        self._figures.saw(self._seen, seen)
        self._seen = seen
        self._alarm(SEEDS, _two_restored(restored(seen)) if not self._agreed else "")
        self._check_place()
        await stop_all(self._peers.know(seen.sites))
        self._tell()

    async def _agree(self, register: Below, seen: Seen) -> None:
        """As long as it cannot, nothing is allocated here, and it is tried again; what there is already is told all the same.  Raises
        RegisterAway."""
        try:
            self._cluster = await agree(register, self._cluster)
        except (CannotJoin, RecordUnreadable) as error:
            self._alarm(DISAGREES, f"this site began, and is not of one mind with the register any more: {error}")
            return
        self._alarm(DISAGREES, "")
        self._agreed = allocated(seen, self._cluster)

    async def _settle_format(self, register: Below, seen: Seen) -> Seen:
        """Raises RegisterAway."""
        try:
            self._cluster = await settle_format(register, self._cluster, seen)
        except RecordUnreadable as error:
            return replace(seen, unreadable=(*seen.unreadable, f"{CLUSTER}: {error}"))
        return seen

    async def _spread(self, register: Below, seen: Seen) -> None:
        """Raises RegisterAway."""
        now_s = asyncio.get_running_loop().time()
        drained = {copy.site for copy in self._peers.copies() if copy.drained}
        move = self._spreading.due(seen, self.up(), drained, now_s)
        if move is not None and self._spreads and await self._spreading.take_turn(register, move, now_s):
            self._log.info("shard.given_by_plan", shard=move.shard, to=move.to)
            ask_to_hand_over(self._topology.run_dir, move.shard, move.to)
            self._figures.given = self._spreading.given

    async def _look_around(self) -> None:
        """What does not need the register: it may be slow, or away."""
        self._copies = await asyncio.to_thread(read_copies, self._topology.run_dir)
        self._peers.ask()
        self._look_who_is_down()
        self._tell()

    def _led_here(self, now: Configuration) -> bool:
        return site_of(now.leader) == self._topology.site

    def _check_place(self) -> None:
        """What an operator, or a second data directory with this id, has made of this site's record."""
        site, found = self._topology.site, self._seen.sites.get(self._topology.site)
        why = ""
        if found is None:
            why = f"site {site.upper()} was forgotten by an operator: stop this broker"
        elif found.address != self._record.address:
            why = f"site {site.upper()} is at {found.address} on {found.name!r} now: two data directories have one id, stop one of them"
        elif found.state == "lost":
            why = f"an operator has said that site {site.upper()} is lost, and it runs: start it again to be a member, or stop it"
        else:
            why = refusal(self._cluster.use, self._record.knows, self._record.release)
        self._alarm(PLACE, why)

    def _look_who_is_down(self) -> None:
        now, up = asyncio.get_running_loop().time(), self.up()
        down = {site: record for site, record in self._seen.sites.items() if site not in up and record.state == "member"}
        self._down_since = {site: self._down_since.get(site, now) for site in down}
        long = [down[site] for site, since in sorted(self._down_since.items()) if now - since >= self._down_s]
        self._alarm(DOWN, ", ".join([self._down(each) for each in long]))

    def _down(self, record: SiteRecord) -> str:
        refused = self._peers.refused(record.site)
        said = f"site {record.site.upper()} on {record.name!r}, at {record.address}, is down"
        return f"{said} ({refused})" if refused else said

    # ------------------------------------------------------------------ telling

    def _tell(self) -> None:
        """By `sites.json`, when something is different."""
        if not self._placed or PLACE in self._alarms:
            return
        now = places(self._topology.site, self._cluster, self._seen, self.up(), self._copies)
        if now != self._told:
            try:
                tell_sites(self._topology.run_dir, now)
                tell_sites(self._topology.data_dir, now)
            except OSError as error:
                # A full disk: it is tried again at the next turn.
                self._log.warning("sites.not_told", cause=str(error))
                return
            self._told = now

    def _alarm(self, kind: str, cause: str) -> None:
        """An empty cause: none any more."""
        if self._alarms.get(kind, "") == cause:
            return
        if cause:
            raise_alarm(self._topology.run_dir, Alarm(self._name, kind, cause))
            if kind not in self._alarms:
                self._log.error(f"site.{kind}", cause=cause)
            self._alarms[kind] = cause
        else:
            clear_alarm(self._topology.run_dir, self._name, kind)
            self._log.info(f"site.{kind}_over")
            self._alarms.pop(kind, None)


def _two_restored(sites: Sequence[str]) -> str:
    if len(sites) < 2:
        return ""
    names = " and ".join(site.upper() for site in sites)
    return (
        f"sites {names} were restored from backups, and a cluster begins with one: stop the others, and begin below another register.prefix"
    )
