"""A shard on the site that leads it: what serves (actors.shard_serving), over a replica.

It is made when the replica says Serve, and gone with the process.  Its store is opened in a thread, as that may take longer than a leader
may be silent.  What the opening asks for, the first generations of a new store or the end of families without a row, goes into the log,
and the store is opened anew when it is applied.

Nothing is salvaged here: a read that meets damage ends the process, and the copy is replaced (actors.replica.copy).
"""

from __future__ import annotations

import asyncio

import structlog

from actors.clocks import read_clocks
from actors.replica.shell import ReplicaShell
from actors.settings import store_options
from actors.shard_client import look_again
from actors.shard_serving import HELD_RETRY_SECONDS, ShardServing
from actors.sites.whereabouts import Whereabouts
from actors.topology import Topology
from actors.wire import Wire
from config.schema import Config
from shards.begun_anew import begin_anew, begun
from shards.committer import Record
from shards.replication.committer import ReplicatedCommitter
from shards.replication.events import Committed, Refused, Submit
from shards.replication.leading import Handing, LeadingEngine

LOOK_S = 0.01

log = structlog.get_logger(__name__)


class LeadingShard(ShardServing):
    """Made -> open -> begun -> over with the process, or ended in order."""

    _not_taken, _taken = "shard.record_held", "shard.records_taken"
    _replicated = True
    _salvages = False

    def __init__(self, topology: Topology, index: int, config: Config, shell: ReplicaShell, position: int) -> None:
        """position: of Serve."""
        super().__init__(topology, index)
        self._config = config
        self._shell = shell
        self._position = position
        self._committer: ReplicatedCommitter | None = None
        self._handed: Record | None = None
        self._told = -1

    async def open(self, wire: Wire, where: Whereabouts) -> None:
        """Raises StoreFailed."""
        while True:
            engine = LeadingEngine(self._shell.copy.engine, self._position)
            self._engine = engine
            await asyncio.to_thread(self._open_or_begin_anew, engine)
            if not engine.wanted:
                break
            for submit in engine.wanted:
                while self._shell.submit(submit) is not None:  # noqa: ASYNC110
                    await asyncio.sleep(HELD_RETRY_SECONDS)
            while not self._shell.replica.quiet:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
        handing = Handing(self._shell.submit)
        engine.serve(handing)
        self._handing = handing
        self._ready(wire, where)
        self._set_pace()
        self._told = self._core.recovered
        self._committer = ReplicatedCommitter(self._told, self, self._bring)
        self._committed(self._told)
        await self._access.start()
        self._begin()

    def _open_or_begin_anew(self, engine: LeadingEngine) -> None:
        """The first who leads after leadership was forced says so in the log, before anything is served."""
        cfg = self._shell.replica.cfg
        assert cfg is not None, "it leads, and knows of no record"
        if cfg.incarnation <= begun(engine):
            self._open_core()
            return
        log.error("shard.begun_anew", shard=self._index, incarnation=cfg.incarnation, complete=cfg.complete, losses=repr(cfg.forced[-1]))
        options = store_options(self._config)
        begin_anew(engine, cfg.incarnation, cfg.complete, self._topology.n_shards, options, read_clocks().wall_ms)

    async def end(self, why: str) -> None:
        """In order: whoever is linked is cut off with this sentence, and what was taken is committed."""
        for link in list(self._links.values()):
            link.close(why)
        await self._end()

    def told(self, effect: Committed) -> None:
        """Of the replica.  What it says while the store is opened was there before."""
        if self._committer is not None and effect.position > self._told:
            self._told = effect.position
            self._committer.told(effect)

    def look_again(self) -> None:
        """Other shards may be led elsewhere now."""
        look_again(self._others.values())

    @property
    def generations(self) -> int:
        return len(self._store.generations())

    @property
    def stored(self) -> int:
        """Messages so far."""
        return self._stored()

    def synced(self, seconds: float) -> None:
        """A sync of the log took so long."""
        self._figures.sync.note(seconds)

    # ---- the committer

    def _hand_in(self, record: Record) -> None:
        assert self._committer is not None
        self._handed = record
        self._committer.submit(record)

    def _bring(self, submit: Submit) -> None:
        why = self._handing.record(submit)
        if why is not None:
            assert self._committer is not None
            self._committer.told(Refused(submit.position, why))

    def _set_pace(self) -> None:
        buffer = self._config.durable_storage.messages.local_write_buffer
        self._shell.syncing.set_pace(buffer.flush_interval.ms, buffer.max_items)

    @property
    def _idle(self) -> bool:
        return self._handed is None or self._handed.position <= self._told

    # ---- CommitListener

    def committed(self, position: int) -> None:
        self._committed(position)

    def refused(self, position: int, reason: str) -> None:
        assert self._handed is not None and self._handed.position == position, f"{position} is refused, and not what was handed in"
        self._hold(self._handed, reason)

    def failed(self, reason: str) -> None:
        self._die(reason)
