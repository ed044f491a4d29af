"""Ends of sessions on the real engine: every row goes, over crashes, and the disk gets its space back."""

from __future__ import annotations

from pathlib import Path

import pytest

from shards.engine_rocks import RocksEngine
from shards.frames import NORMAL, Connect, Connected, Disconnect
from tests.shards.ended import KEPT_MS, fill, own, rows, work_through
from tests.shards.harness import G, Harness, S


class Rocks(Harness):
    """A shard on RocksDB; `reopen` closes nothing, as a crash does not, but a directory can be open only once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(RocksEngine(str(path)))

    def again(self) -> None:
        self.engine.close()
        self.engine = RocksEngine(str(self.path))
        self.names.clear()
        self.sent.clear()
        self._open()


def sessions(h: Harness, count: int, expiry_s: int, subscriptions: int) -> list[tuple[bytes, Connected]]:
    token = own(h).token
    clients = [b"client-%d" % n for n in range(count)]
    answers = h.ask(G, *(Connect(client, False, expiry_s, 5, None) for client in clients))
    made = [(client, reply) for client, reply in zip(clients, answers, strict=True) if isinstance(reply, Connected)]
    for n, (client, connected) in enumerate(made):
        fill(h, client, connected, token, subscriptions, first=n * subscriptions + 1)
    return made


@pytest.mark.parametrize("restart", [False, True])
def test_every_row_of_ended_sessions_goes(tmp_path: Path, restart: bool) -> None:
    """Small ones and a huge one; with restarts between the steps."""
    h = Rocks(tmp_path)
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    made = sessions(h, 20, 60, 3)
    h.ask(G, Connect(b"huge", False, 60, 5, None))
    (huge,) = h.ask(G, Connect(b"huge", False, 60, 5, None))
    assert isinstance(huge, Connected)
    fill(h, b"huge", huge, own(h).token, 1_200, first=1_000)
    h.ask(G, *(Disconnect(client, connected.conn, NORMAL, None) for client, connected in [*made, (b"huge", huge)]))
    for step in range(4):
        if restart:
            h.again()
            h.link(G, "gateway", f"g0:{step}")
            h.link(S, "session", f"s0:{step}")
        h.tick(20_000)
    if restart:
        h.again()
        h.link(G, "gateway", "g0:z")
        h.link(S, "session", "s0:z")
    h.settle()
    last = own(h)
    work_through(h, last.token, last.work)
    h.pass_time(KEPT_MS)
    assert rows(h.engine) == {}
    h.engine.close()
