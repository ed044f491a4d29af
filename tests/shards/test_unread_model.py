"""Whatever happens between shards, homes and sessions, no generation goes that a session has not acknowledged (hold_unread)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.shards.waiting import Shard, Stores

CLIENTS = (b"c", b"d")
FILTERS = (b"a/+", b"a/1", b"#", b"b")
TOPICS = (b"a/1", b"a/2", b"b")
shards = st.integers(0, 1)
clients = st.sampled_from(CLIENTS)
syncs = st.booleans()


class Waiting(RuleBasedStateMachine):
    """Two shards; the judge is Stores.judge, called at each drop, and Stores.activate."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = Stores(2, generation_ms=1_000, retention_ms=500, tail_bytes_max=100)

    def shard(self, index: int) -> Shard:
        return self.stores.shards[index]

    @initialize()
    def everybody_connects(self) -> None:
        for client in CLIENTS:
            self.stores.connect(client)
        self.stores.subscribe(b"c", b"a/+")

    # ---- what is stored

    @rule(shard=shards, topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4))
    def publish(self, shard: int, topics: list[bytes]) -> None:
        for topic in topics:
            self.stores.publish(self.shard(shard), topic)

    # ---- what sessions do

    @precondition(lambda self: not self.stores.adding)
    @rule(client=clients, topic_filter=st.sampled_from(FILTERS), steps=st.integers(1, 4))
    def begin(self, client: bytes, topic_filter: bytes, steps: int) -> None:
        self.stores.begin_subscription(client, topic_filter)
        self.go_on(steps - 1)

    @precondition(lambda self: self.stores.adding)
    @rule(steps=st.integers(1, 3))
    def go_on(self, steps: int) -> None:
        """One that is being made is asked for in the next shard, or is active."""
        for _ in range(steps):
            for adding in self.stores.adding[:1]:
                away = [shard for shard in self.stores.shards if shard.shard not in adding.starts]
                if away:
                    self.stores.route(adding, away[0])
                else:
                    self.stores.activate(adding, sync=steps != 2)

    @rule(client=clients, shard=shards, count=st.integers(1, 3), sync=syncs)
    def read(self, client: bytes, shard: int, count: int, sync: bool) -> None:
        for index in range(len(self.stores.state(client).subs)):
            self.stores.read(client, index, self.shard(shard), count, sync=sync)

    @rule(client=clients, data=st.data(), sync=syncs)
    def acknowledge(self, client: bytes, data: st.DataObject, sync: bool) -> None:
        ranges = self.stores.state(client).ranges
        if ranges:
            self.stores.acknowledge(client, data.draw(st.integers(0, len(ranges) - 1)), sync=sync)

    @rule(sync=syncs, but=st.sampled_from((None, *CLIENTS)), ms=st.sampled_from([0, 2500]))
    def catch_up(self, sync: bool, but: bytes | None, ms: int) -> None:
        """Everybody reads everything, and acknowledges nothing; one reads a single message only.  Then there is time for a drop."""
        for client in CLIENTS:
            for index in range(len(self.stores.state(client).subs)):
                for shard in self.stores.shards:
                    while self.stores.read(client, index, shard, 1 if client == but else 100, sync=sync) and client != but:
                        pass
        self.stores.pass_time(ms, 250)

    @rule(client=clients)
    def read_all(self, client: bytes) -> None:
        self.stores.read_all(client)

    @rule(client=clients, sync=syncs)
    def unsubscribe(self, client: bytes, sync: bool) -> None:
        if self.stores.state(client).subs:
            self.stores.unsubscribe(client, 0, sync=sync)

    @rule(client=clients)
    def clean_start(self, client: bytes) -> None:
        self.stores.home(client).commit()
        self.stores.connect(client, clean=True)

    # ---- time, links, crashes

    @rule(shard=shards, ms=st.sampled_from([20, 100, 1000, 2500]), sync=syncs)
    def turn(self, shard: int, ms: int, sync: bool) -> None:
        self.stores.turn(self.shard(shard), ms, sync=sync)

    @rule(ms=st.sampled_from([500, 1500, 3500]), again=st.integers(0, 2))
    def time_passes(self, ms: int, again: int) -> None:
        self.stores.pass_time(ms, 250)
        for shard in self.stores.shards[:again]:
            self.stores.publish(shard, b"a/1")

    @rule(shard=shards)
    def carry(self, shard: int) -> None:
        self.stores.carry(self.shard(shard))

    @rule(shard=shards)
    def tell(self, shard: int) -> None:
        self.stores.tell(self.shard(shard))

    @rule(shard=shards)
    def the_link_breaks(self, shard: int) -> None:
        self.stores.lose(self.shard(shard), self.shard(1 - shard))

    @rule(shard=shards)
    def crash(self, shard: int) -> None:
        self.stores.crash(self.shard(shard))

    @invariant()
    def each_part_is_in_order(self) -> None:
        for shard in self.stores.shards:
            shard.core.check()

    def teardown(self) -> None:
        """At last everybody acknowledges everything, and everything that is sealed goes: nothing holds without a reason."""
        while self.stores.adding:
            self.go_on(1)
        for client in CLIENTS:
            self.stores.connect(client)
            self.stores.read_all(client)
        sealed = [(shard.shard, info.id) for shard in self.stores.shards for info in shard.sealed]
        for _ in range(len(sealed) + 1):
            self.stores.pass_time(4_000, 500)
        left = {(shard.shard, info.id) for shard in self.stores.shards for info in shard.sealed}
        assert not left & set(sealed)


Waiting.TestCase.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
TestWaiting = pytest.mark.slow(Waiting.TestCase)
