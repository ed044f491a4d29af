"""The shard actor of a site that stands alone: one RocksDB, one shard core, links from everybody.

The store is written on the loop, unsynced; the sync runs in one thread of its own (actors.syncing), because it releases the interpreter
lock and nothing else of the store does (docs/performance.md), or on the loop where nobody waits (actors.inlining).  A write or a sync that
fails ends the process: what is on disk is read again by the next one, and whoever was not answered sends again.  A full disk is no such
failure (actors.shard_serving).
"""

from __future__ import annotations

import asyncio
import os
import time

import structlog

from actors.endpoints import Endpoint
from actors.inlining import Inlining
from actors.known_stores import note_store, require_store
from actors.links import LinkServer
from actors.pump import settle_gc
from actors.shard_serving import ShardServing
from actors.sites.whereabouts import OneSite
from actors.snapshot import settings_in_force
from actors.syncing import Syncing
from actors.topology import Announcement, Health, Topology, announce, incarnation_name, member_name
from actors.wire import Wire
from shards import committer as commits
from shards.backends import open_backend
from shards.engine import Engine, StoreFailed, StoreFull, StoreInUse

log = structlog.get_logger(__name__)

OPEN_RETRY_SECONDS = 1.0


class ShardServer(ShardServing):
    """Owns one shard's engine and core.

    If a request is answered, its effect survives any crash.  If it is not, it may or may not have happened: whoever asked
    sends it again under the same number, and it happens once.
    """

    def __init__(self, topology: Topology, index: int) -> None:
        super().__init__(topology, index)
        self._started: Announcement | None = None

    async def start(self) -> Announcement:
        """Waits, loudly, as long as the store cannot be opened for lack of room; other faults end the process."""
        if self._started is not None:
            return self._started
        topology = self._topology
        self._config = settings_in_force(topology)
        self._engine = await self._open_engine()
        for sentence in getattr(self._engine, "damage_found", ()):
            log.error("shard.damage", shard=self._index, cause=sentence)
        try:
            self._open_core()
        except Exception:
            # The next attempt opens it anew; while this one is open, it could not.
            self._engine.close()
            raise
        if self._store.lost_at_open:
            log.error("shard.generations_lost", shard=self._index, generations=list(self._store.lost_at_open))
        inlining = Inlining(lambda: self._core.publisher)
        self._syncing = Syncing(self._engine.sync, self._tell_committer, self._figures.sync.note, self._stored, inlining)
        self._set_pace()
        self._committer = commits.LocalCommitter()
        wire = Wire.of(topology)
        self._ready(wire, OneSite(topology))
        name = incarnation_name("shard", self._index)
        self._server = LinkServer([Endpoint(topology.shard_endpoint(self._index))], self, wire, "shard", name)
        self._drive(self._committer.handle(commits.Opened(self._core.recovered)))
        self._note_store()
        started = Announcement("shard", member_name("shard", self._index), os.getpid())
        try:
            await self._access.start()
            await self._server.start()
            self._begin()
            settle_gc()
            announce(topology, started)
        except Exception:
            # As above.
            await self._close()
            raise
        self._started = started
        log.info("shard.started", shard=self._index, recovered=self._core.recovered, generations=len(self._store.generations()))
        return self._started

    async def stop(self) -> None:
        """Whoever is linked is cut off; what was taken is committed; the store is closed."""
        if self._started is None:
            return
        self._started = None
        await self._close()
        log.info("shard.stopped", shard=self._index)

    async def _close(self) -> None:
        await self._server.stop()
        self._syncing.set_pace(0, 1)
        await self._end()
        self._syncing.close()
        self._engine.close()

    async def health(self) -> Health:
        return Health(self._started is not None and not self._failed, self._failed)

    # ------------------------------------------------------------------ opening

    async def _open_engine(self) -> Engine:
        path = self._topology.store_path(self._index)
        require_store(self._topology.data_dir, path, self._index)
        path.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                messages = self._config.durable_storage.messages
                return open_backend(messages.backend, str(path), messages.on_damage, int(messages.block_cache))
            except (StoreFull, StoreInUse) as error:
                # A former process of this shard may still be on its way out; a full disk may get room again.
                log.error("shard.cannot_open_yet", shard=self._index, cause=str(error))
                await asyncio.sleep(OPEN_RETRY_SECONDS)

    def _note_store(self) -> None:
        try:
            note_store(self._topology.data_dir, self._topology.store_path(self._index), self._index)
        except OSError as error:
            # A full disk must not keep a store from being served that was there before there were such notes.
            log.warning("shard.not_noted", shard=self._index, cause=str(error))

    # ------------------------------------------------------------------ committing

    def _hand_in(self, record: commits.Record) -> None:
        self._drive(self._committer.handle(commits.Submit(record)))

    @property
    def _idle(self) -> bool:
        return self._committer.state == "idle"

    def _set_pace(self) -> None:
        buffer = self._config.durable_storage.messages.local_write_buffer
        self._syncing.set_pace(buffer.flush_interval.ms, buffer.max_items)

    def _drive(self, effects: list[commits.Effect]) -> None:
        for effect in effects:
            match effect:
                case commits.Write(record):
                    began = time.monotonic()
                    try:
                        self._engine.write(record.ops)
                        self._figures.write.note(time.monotonic() - began)
                        if self._syncing.put_off:
                            self._syncing.more_written()
                    except StoreFull as error:
                        self._drive(self._committer.handle(commits.WriteRefused(record.position, str(error))))
                        self._hold(record, str(error))
                    except StoreFailed as error:
                        self._syncing.failed = True
                        self._die(f"write at position {record.position}: {error}")
                case commits.StartSync():
                    self._syncing.wanted()
                case commits.Committed(position):
                    self._committed(position)
                case commits.Refused():
                    pass  # It is held, and submitted again.
                case commits.Failed(reason):
                    self._syncing.failed = True
                    self._die(f"sync: {reason}")

    def _tell_committer(self, event: commits.Event) -> None:
        self._drive(self._committer.handle(event))
