"""Two clients with one id: a few takeovers are free, then the newcomer waits longer and longer, and all is forgotten in peace."""

from __future__ import annotations

from shards.contention import CLIENTS_MAX, PEACE_MS, WINDOW_MS, Contention
from shards.events import Contended, Peace, SettingsChanged
from shards.frames import Connect, Connected, Superseded
from shards.options import ShardOptions, StoreOptions
from tests.shards.harness import G, Harness, linked


def come(h: Harness, peer: str = "10.0.0.1") -> Connected:
    (reply,) = h.ask(G, Connect(b"c", True, 0, 5, None, peer=peer))
    assert isinstance(reply, Connected)
    return reply


def test_from_the_sixth_takeover_on_the_newcomer_waits() -> None:
    """1, 2, 4 ... 30 s; when its time is over, the first who asks takes over, and the next one waits twice as long."""
    contention = Contention(5)
    now_ms = 1_000
    for _ in range(5):
        assert contention.takes(b"c", now_ms) == (0, False)
        now_ms += 10
    for wait_ms in (1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000):
        assert contention.takes(b"c", now_ms) == (wait_ms, True)
        assert contention.takes(b"c", now_ms + 400) == (wait_ms - 400, False), "another newcomer waits for the same end"
        assert contention.takes(b"c", now_ms + wait_ms) == (0, False)
        now_ms += wait_ms + 1
        contention.check()


def test_takeovers_count_for_half_a_minute() -> None:
    """Five within 30 s are free, whenever they were."""
    contention = Contention(5)
    for number in range(50):
        assert contention.takes(b"c", number * (WINDOW_MS // 5)) == (0, False)


def test_after_a_fight_takeovers_that_are_rare_wait_less_and_less() -> None:
    """A client that goes from one network to another each 20 s does not pay for ever for the time when two fought for its id."""
    contention = Contention(5)
    now_ms, waits = 1_000, []
    for _ in range(31):
        now_ms += contention.takes(b"c", now_ms)[0] or 10
    for _ in range(4):
        now_ms += 20_000
        wait_ms, begins = contention.takes(b"c", now_ms)
        waits.append(wait_ms)
        assert begins == (wait_ms > 0)
        now_ms += wait_ms
        if wait_ms:
            assert contention.takes(b"c", now_ms) == (0, False)
        contention.check()
    assert waits == [7_500, 0, 0, 0] and not contention.contended
    assert contention.forget(now_ms) and not contention.forget(now_ms), "the alarm goes, though the client is asked for"


def test_who_waits_for_the_end_in_silence_has_not_calmed_it() -> None:
    """A gateway asks again when the time is over, not before."""
    contention = Contention(1)
    assert [contention.takes(b"c", now_ms)[0] for now_ms in (0, 1, 1_001, 1_002, 3_002, 3_003)] == [0, 1_000, 0, 2_000, 0, 4_000]
    assert contention.takes(b"c", 3_003 + 4_000 + WINDOW_MS - 1) == (0, False)
    assert contention.takes(b"c", 3_003 + 4_000 + WINDOW_MS)[0] == 8_000


def test_a_minute_of_peace_forgets_it() -> None:
    """From the last one who asked on; the word that all are in peace is given once."""
    contention = Contention(1)
    for client in (b"c", b"d"):
        assert contention.takes(client, 0) == (0, False) and contention.takes(client, 1) == (1_000, True)
    contention.takes(b"d", 500)
    assert contention.contended == 2
    assert not contention.forget(PEACE_MS) and contention.contended == 2
    assert not contention.forget(PEACE_MS + 1) and contention.contended == 1
    assert contention.forget(PEACE_MS + 500) and not contention.contended
    assert not contention.forget(PEACE_MS * 2)
    assert contention.takes(b"c", PEACE_MS * 2) == (0, False)


def test_what_is_known_of_clients_is_bounded() -> None:
    """The one that was longest in peace is forgotten."""
    contention = Contention(1)
    contention.takes(b"first", 0)
    contention.takes(b"first", 1)
    for number in range(CLIENTS_MAX):
        contention.takes(b"%d" % number, 2)
    contention.check()
    assert not contention.contended and contention.takes(b"first", 3) == (0, False)


def test_the_home_lets_the_one_that_is_there_go_on_and_says_who_they_are() -> None:
    """Nobody is superseded while the newcomer waits; log and alarm have both, and a minute later the alarm goes."""
    h = linked(takeovers_max=2)
    for _ in range(3):
        assert come(h, "10.0.0.9").conn
    h.take(G, Superseded)
    refused = come(h, "10.0.0.7")
    assert refused == Connected(0, False, 0, 0, refused.owner, 0, 1_000) and not h.take(G, Superseded)
    assert h.notices == [Contended(b"c", (b"", "10.0.0.9"), (b"", "10.0.0.7"), 1_000)]
    h.tick(500)
    assert come(h).retry_ms < 600 and len(h.notices) == 1
    h.tick(600)
    assert come(h).conn and h.take(G, Superseded)
    h.pass_time(PEACE_MS + 1_000)
    assert h.notices[1:] == [Peace()]


def test_without_a_bound_nobody_waits() -> None:
    """takeovers_max 0, which a running shard can be told."""
    h = linked(takeovers_max=1)
    assert [come(h).conn > 0 for _ in range(3)] == [True, True, False]
    h.core.handle(SettingsChanged(ShardOptions(takeovers_max=0), StoreOptions()))
    assert all(come(h).conn for _ in range(20))
