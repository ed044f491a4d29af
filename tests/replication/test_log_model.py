"""The replicated log against a list: any order of appending, replacing, trimming, beginning anew, restarts and crashes."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shards.replication.entry import Entry, Kind
from shards.replication.log_format import SEGMENT_HEAD_BYTES
from tests.replication.logs import again, held, make, quick, segments


class LogModel(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.directory = quick()
        self.path = self.directory.__enter__()
        self.log = make(self.path / "log")
        self.base = 0
        """Index before the first entry of the list; entries before that are of no interest any more."""
        self.entries: list[Entry] = []
        self.epoch = 1
        self.synced()

    def synced(self) -> None:
        """What is there now is on disk: sizes of the files, and the states in which a power cut may leave the log from here on."""
        self.sizes = {file.name: file.stat().st_size for file in segments(self.path / "log")}
        self.states = [list(self.entries)]

    @property
    def last(self) -> int:
        return self.base + len(self.entries)

    def fresh(self, first: int, sizes: list[int]) -> list[Entry]:
        return [Entry(index, self.epoch, Kind.RECORD, bytes([index % 251]) * size) for index, size in enumerate(sizes, first)]

    def maybe_sync(self, sync: bool) -> None:
        self.states.append(list(self.entries))
        if sync:
            self.log.sync()
            self.synced()

    @rule(sizes=st.lists(st.integers(0, 150), min_size=1, max_size=6), sync=st.booleans())
    def append(self, sizes: list[int], sync: bool) -> None:
        new = self.fresh(self.last + 1, sizes)
        self.log.append(new)
        self.entries += new
        self.maybe_sync(sync)

    @precondition(lambda self: self.log.first <= self.log.last)
    @rule(back=st.integers(0, 12), sizes=st.lists(st.integers(0, 150), min_size=1, max_size=6), sync=st.booleans())
    def replace(self, back: int, sizes: list[int], sync: bool) -> None:
        self.epoch += 1
        first = max(self.last - back, self.log.first)
        new = self.fresh(first, sizes)
        self.log.append(new)
        self.entries[first - self.base - 1 :] = new
        self.maybe_sync(sync)

    @rule()
    def lead(self) -> None:
        self.epoch += 1

    @rule(kept=st.integers(0, 30), pinned=st.integers(0, 30))
    def trim(self, kept: int, pinned: int) -> None:
        applied, pinned = max(self.last - kept, 0), max(self.last - pinned, 1)
        pin = self.log.pin(pinned)
        before = self.log.first
        self.log.trim(applied)
        pin.let_go()
        assert before <= self.log.first <= max(before, min(applied + 1, pinned))

    @rule(ahead=st.integers(0, 50))
    def begin_anew(self, ahead: int) -> None:
        self.base, self.entries = self.last + ahead, []
        self.log.reset(self.base, self.epoch)
        self.synced()

    @rule()
    def restart(self) -> None:
        first = self.log.first
        self.log.close()
        self.log = again(self.path / "log")
        assert (self.log.first, self.log.cut_bytes) == (first, 0)
        self.synced()

    @rule(shares=st.lists(st.floats(0, 1), min_size=8, max_size=8))
    def power_cut(self, shares: list[float]) -> None:
        """Of each file some of what was not synced is gone, whatever is left of the others."""
        self.log.close()
        for file, share in zip(reversed(segments(self.path / "log")), shares * 9, strict=False):
            size = self.sizes.get(file.name, SEGMENT_HEAD_BYTES)
            os.truncate(file, size + int(share * (file.stat().st_size - size)))
        self.log = again(self.path / "log")
        first, there = self.log.first, held(self.log)
        assert there in [state[first - self.base - 1 :] for state in self.states]
        self.entries[first - self.base - 1 :] = there
        self.synced()

    @rule(size=st.integers(1, 120), share=st.floats(0, 1), replacing=st.booleans())
    def crash_while_appending(self, size: int, share: float, replacing: bool) -> None:
        """Nothing of a batch that was not synced has to be there, and then nothing of it is."""
        replacing = replacing and self.log.first <= self.log.last
        before = {file.name: file.stat().st_size for file in segments(self.path / "log")}
        self.log.close()
        shutil.copytree(self.path / "log", self.path / "kept")
        log = again(self.path / "log")
        first = max(self.last - 3, log.first) if replacing else self.last + 1
        log.append([Entry(first, self.epoch, Kind.RECORD, bytes(size))])
        log.close()
        file = segments(self.path / "log")[-1]
        whole = file.read_bytes()
        there = before.get(file.name, SEGMENT_HEAD_BYTES)
        kept = there + int(share * (len(whole) - there - 1))
        (self.path / "kept" / file.name).write_bytes(whole[:kept])
        shutil.rmtree(self.path / "log")
        (self.path / "kept").rename(self.path / "log")
        self.log = again(self.path / "log")
        assert self.log.cut_bytes == kept - there
        self.synced()

    @invariant()
    def it_is_the_list(self) -> None:
        there = held(self.log)
        assert self.log.last == self.last
        assert there == self.entries[self.log.first - self.base - 1 :]
        before = self.log.first - 1
        if before > self.base:
            assert self.log.epoch_at(before) == self.entries[before - self.base - 1].epoch

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            self.directory.__exit__(None, None, None)


LogModel.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
TestLogModel = pytest.mark.slow(LogModel.TestCase)
