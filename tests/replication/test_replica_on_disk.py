"""Three replicas over the log that ships, on a real disk: what is committed is in the files, whoever is started again."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from random import Random

import pytest

from shards.committer import Record
from shards.engine_memory import MemoryEngine
from shards.replication.applying import applied_in, apply
from shards.replication.bounds import Retained
from shards.replication.configuration import Configuration, Rid, first, rid_of
from shards.replication.entry import Kind
from shards.replication.events import (
    Apply,
    Committed,
    DataSynced,
    Effect,
    Event,
    Propose,
    Proposed,
    ReadRegister,
    Received,
    RegisterRead,
    Send,
    StartSync,
    Submit,
    SyncData,
    SyncDone,
    SyncStarted,
    Tick,
)  # fmt: skip
from shards.replication.log import LogLimits
from shards.replication.log_opening import open_log
from shards.replication.messages import pack, unpack
from shards.replication.ports import Outcome
from shards.replication.replica import Replica
from tests.replication.logs import quick

NAMES = ("a", "b", "c")
LIMITS = LogLimits(segment_bytes=1500)


class Cluster:
    """Nothing is lost or late here; everything goes through the bytes of messages and of the log."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 0
        self.cfg = first(frozenset(rid_of(name, "1") for name in NAMES), "first")
        self.hosts = {rid_of(name, "1"): Host(rid_of(name, "1"), directory / name, self) for name in NAMES}
        self.waiting: deque[tuple[Rid, Event]] = deque()

    def turn(self, ms: int = 100) -> None:
        self.now_ms += ms
        self.waiting.extend((rid, Tick(self.now_ms)) for rid in self.hosts)
        while self.waiting:
            rid, event = self.waiting.popleft()
            self.hosts[rid].bring(event)

    def leader(self) -> Host:
        for _ in range(100):
            self.turn()
            for host in self.hosts.values():
                if host.replica.quiet:
                    return host
        raise AssertionError(f"nobody serves: {self.cfg}")

    def propose(self, new: Configuration) -> Outcome:
        if new.ver != self.cfg.ver + 1:
            return Outcome.CONFLICT
        self.cfg = Configuration.unpack(new.pack())
        return Outcome.DONE


class Host:
    def __init__(self, rid: Rid, directory: Path, cluster: Cluster) -> None:
        self.rid, self.directory, self.cluster = rid, directory, cluster
        self.engine = MemoryEngine()
        self.committed = -1
        self.log = open_log(str(directory), 0, 1, new=rid, limits=LIMITS)
        self._start()

    def again(self, power: bool) -> None:
        """The process ends; with the power what the data engine has not synced is gone, and is applied again from the log."""
        self.log.close()
        self.engine = self.engine.crash(power)
        self.log = open_log(str(self.directory), 0, 1, limits=LIMITS)
        self._start()

    def _start(self) -> None:
        self.replica = Replica(self.rid, self.log, applied_in(self.engine), Random(self.rid), Retained(entries=10, sync_data_ms=500))

    def bring(self, event: Event) -> None:
        for effect in self.replica.handle(event):
            self._do(effect)
        if isinstance(event, SyncStarted):
            self.log.sync()
            self.cluster.waiting.append((self.rid, SyncDone()))
        self.replica.check()
        self.log.check()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self.cluster.waiting.append((to, Received(self.rid, unpack(pack(message)))))
            case StartSync():
                self.cluster.waiting.append((self.rid, SyncStarted()))
            case ReadRegister():
                self.cluster.waiting.append((self.rid, RegisterRead(self.cluster.cfg)))
            case Propose(new):
                self.cluster.waiting.append((self.rid, Proposed(new, self.cluster.propose(new))))
            case Apply(entries, position):
                apply(self.engine, entries, position)
            case SyncData(index):
                self.engine.sync()
                self.cluster.waiting.append((self.rid, DataSynced(index)))
            case Committed(position):
                self.committed = position
            case _:
                pass


@pytest.mark.slow
def test_what_is_committed_is_in_the_files_of_all_whoever_is_started_again() -> None:
    """By log alone: each is started again in turn, the leader too; trimmed segments are gone; at the end all hold the same."""
    with quick() as directory:
        _restarts(directory)


def _restarts(directory: Path) -> None:
    cluster = Cluster(directory)
    position = 0
    for turn in range(30):
        leader = cluster.leader()
        for _ in range(4):
            position += 1
            record = Record(position, [(0, b"%08d" % position, b"v" * 40)])
            leader.bring(Submit(Kind.RECORD, record.encode(), position))
        cluster.turn()
        assert leader.committed == position
        if turn % 3 == 2:
            cluster.hosts[rid_of(NAMES[turn // 3 % 3], "1")].again(power=turn % 2 == 0)
    assert cluster.leader().committed == position
    for _ in range(20):
        cluster.turn()
    rows = [host.engine.scan(0, b"0", b":", 1 << 20) for host in cluster.hosts.values()]
    assert [len(found) for found in rows] == [position] * 3 and rows[0] == rows[1] == rows[2]
    assert all(host.log.first > 1 for host in cluster.hosts.values()), "nothing was trimmed"
    logs = [host.log.read(max(other.log.first for other in cluster.hosts.values()), 1000, 1 << 20) for host in cluster.hosts.values()]
    assert logs[0] == logs[1] == logs[2] != []
