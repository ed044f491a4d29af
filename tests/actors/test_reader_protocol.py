"""What a reader answers to whoever speaks to it, well or badly: each error has its code and a sentence, and nobody is in anybody's way."""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from config.pipeline import Token
from holdfast_spark.protocol import BLOCK_BYTES_MAX, HELLO_BYTES_MAX, Kind
from shards.engine import StoreDamaged, StoreFailed
from shards.generations import GenerationDropped
from tests.actors.calling import HEAD, WAIT_S, caller, stranger
from tests.actors.served import STORE, TOKEN, said, served

LAKE = Token(name="lake", sha256="4d2ea53fb43f13b1b26ba9b97dc8cf7a54ecdd4d7a3e96b0c4ee5cbdae7de50c", filters=("plant/1/#",))
SECRET = "lake's own"


def lake(**changed: Any) -> Token:
    """Whoever shows SECRET."""
    import hashlib

    return LAKE.model_copy(update={"sha256": hashlib.sha256(SECRET.encode()).hexdigest(), **changed})


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nothing is printed, and everything is said, also after a test of a command that had set a level."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    yield
    structlog.configure(**before)


# ---------------------------------------------------------------------- hello


def test_hello_says_which_store_it_is_and_a_wrong_one_is_refused_and_closed() -> None:
    """Nothing is answered before the token was shown."""
    with served(said(b"a")) as broker:
        with stranger(broker) as other:
            assert other.hello(TOKEN) == {"hello": 1, "store": STORE, "shards": 1, "release": "test"}
        for token in ("", "wrong", TOKEN + " ", 5, None):
            with stranger(broker) as other:
                answer = other.hello(token)
                assert answer["error"] == "TOKEN" and TOKEN not in json.dumps(answer) and other.is_over()
        for version in (0, 2, "1", None):
            with stranger(broker) as other:
                answer = other.hello(TOKEN, version)
                assert (answer["error"], answer["version"]) == ("VERSION", 1) and other.is_over()


def test_a_request_before_hello_and_a_large_frame_before_a_token_are_refused() -> None:
    """A stranger gets no memory of ours."""
    with served(said(b"a")) as broker:
        with stranger(broker) as other:
            assert other.ask("CUTS")["error"] == "VERSION" and other.is_over()
        with stranger(broker) as other:
            other.socket.sendall(HEAD.pack(HELLO_BYTES_MAX + 1, 1))
            assert other.wire.receive_json()["error"] == "REQUEST" and other.is_over()
        with stranger(broker) as other:
            other.socket.sendall(HEAD.pack(4, 1) + b"[1]")
            assert other.wire.receive_json()["error"] == "REQUEST" and other.is_over()


def test_tokens_and_payloads_are_in_no_log() -> None:
    """Whoever may read logs may not read messages for that."""
    with capture_logs() as logs, served(said(b"a", b"a payload"), tokens=[lake()]) as broker:
        with stranger(broker) as other:
            other.hello("a guess")
        with caller(broker, SECRET) as reader:
            reader.ask("PLAN", from_={}, to={}, filters=["#"], rows_per_unit=1)
        with caller(broker) as reader:
            assert len(reader.everything(broker, "#")) == 1
    text = repr(logs)
    assert {each["event"] for each in logs} >= {"reader.token_refused", "reader.connected", "reader.answered"}
    assert not any(word in text for word in ("a guess", "a payload", TOKEN, SECRET))


# ---------------------------------------------------------------------- requests that make no sense

UNIT: dict[str, Any] = {"store": STORE, "shard": 0, "generation": 1, "from": 0, "to": 1, "filters": ["#"]}
PLAN: dict[str, Any] = {"from": {"0": 0}, "to": {"0": 1}, "filters": ["#"], "rows_per_unit": 1}


@pytest.mark.parametrize(
    ("verb", "fields", "named"),
    [
        (None, {}, "verb"),
        ("DROP", {}, "verb"),
        ([], {}, "verb"),
        ("SCAN", {**UNIT, "shard": 1}, "shard"),
        ("SCAN", {**UNIT, "shard": True}, "shard"),
        ("SCAN", {**UNIT, "generation": 0}, "generation"),
        ("SCAN", {**UNIT, "generation": 99}, "generation 99"),
        ("SCAN", {**UNIT, "from": 2}, "from"),
        ("SCAN", {**UNIT, "to": -1}, "to"),
        ("SCAN", {**UNIT, "to": 1 << 62}, "cut"),
        ("SCAN", {**UNIT, "to": 1 << 70}, "to"),
        ("SCAN", {**UNIT, "filters": "#"}, "filters"),
        ("SCAN", {**UNIT, "filters": ["a/#/b"]}, "filters"),
        ("SCAN", {**UNIT, "filters": [7]}, "filters"),
        ("SCAN", {**UNIT, "clients": "c"}, "clients"),
        ("SCAN", {**UNIT, "store": 1}, "store"),
        ("PLAN", {**PLAN, "from": {"1": 0}}, "from"),
        ("PLAN", {**PLAN, "from": {"00": 0}}, "from"),
        ("PLAN", {**PLAN, "from": {"9" * 5000: 0}}, "from"),
        ("PLAN", {**PLAN, "to": {}}, "to"),
        ("PLAN", {**PLAN, "to": {"0": 1 << 62}}, "cut"),
        ("PLAN", {**PLAN, "rows_per_unit": 0}, "rows_per_unit"),
        ("PLAN", {**PLAN, "shards": [1]}, "shards"),
        ("LIMIT", {**PLAN, "rows": 0}, "rows"),
        ("LIMIT", {**PLAN, "bytes": "1MB"}, "bytes"),
        ("FIND", {"ms": 5}, "ms"),
        ("FIND", {"ms": [-1]}, "ms"),
        ("LEASE", {"do": "steal"}, "do"),
        ("LEASE", {"do": "ack", "name": "nobody", "to": {"0": 5}}, "nobody"),
        ("LEASE", {"do": "put", "name": "", "filters": []}, "name"),
        ("LEASE", {"do": "put", "name": "a", "filters": [], "start": "yesterday"}, "start"),
        ("LEASE", {"do": "put", "name": "a", "filters": [], "ttl_ms": 0}, "ttl_ms"),
        ("STATS", {"filters": None}, "filters"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_and_the_connection_goes_on(
    served_one: Any, verb: Any, fields: dict[str, Any], named: str
) -> None:
    """It names what was found, and the next request is answered."""
    broker = served_one
    with caller(broker) as reader:
        reader.wire.send_json({"verb": verb, **fields})
        answer = reader.wire.receive_json()
        assert answer["error"] == "REQUEST" and named in answer["sentence"] and "\n" not in answer["sentence"], answer
        assert reader.cut() > 0


@pytest.fixture(scope="module")
def served_one() -> Any:
    with served(
        said(b"plant/1/t", b"x"), said(b"plant/2/t", b"y"), tokens=[lake(), lake(name="writer", sha256="0" * 64, write=True)]
    ) as broker:
        yield broker


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"", b'"verb"', b"[" * 60_000])
def test_json_that_is_none_leaves_the_connection(served_one: Any, body: bytes) -> None:
    """The frame had an end, so it is known where the next begins."""
    with caller(served_one) as reader:
        reader.wire.send(Kind.JSON, body)
        assert reader.wire.receive_json()["error"] == "REQUEST"
        reader.wire.send(Kind.BLOCK, b"a block")
        assert reader.wire.receive_json()["error"] == "REQUEST"
        assert reader.cut() > 0


@pytest.mark.parametrize("head", [HEAD.pack(0, 1), HEAD.pack(1 << 31, 1), HEAD.pack(10, 9), struct.pack(">IB", 17 << 20, 1)])
def test_a_frame_that_cannot_be_ends_the_connection(served_one: Any, head: bytes) -> None:
    """Nobody knows where the next one begins, and nobody waits for two gigabytes."""
    with caller(served_one) as reader:
        reader.socket.sendall(head)
        assert reader.wire.receive_json()["error"] == "REQUEST"
        assert reader.is_over()


def test_who_may_not_write_is_not_waited_for_with_a_large_message(served_one: Any) -> None:
    """No room is made for it; who may write has the frame taken, however large a message can be."""
    head = HEAD.pack(17 << 20, Kind.MESSAGES)
    for token, over in ((SECRET, True), (TOKEN, False)):
        with caller(served_one, token) as reader:
            reader.wire.send_json({"verb": "APPEND", "writer": "w", "batch": 0, "block": 0, "rows": 1})
            reader.socket.sendall(head)
            if over:
                assert reader.is_over()
            else:
                reader.socket.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    reader.socket.recv(1)


def test_a_request_that_is_cut_short_is_never_carried_out(served_one: Any) -> None:
    """Whatever is missing of it; and its thread is gone with it."""
    broker = served_one
    body = json.dumps({"verb": "LEASE", "do": "put", "name": "half", "filters": []}).encode()
    whole = HEAD.pack(len(body) + 1, 1) + body
    for length in (0, 1, 4, 5, 6, len(whole) - 1):
        with caller(broker) as reader:
            reader.socket.sendall(whole[:length])
    _until(lambda: broker._doors.connections == 0)
    with caller(broker) as reader:
        assert reader.ask("LEASE", do="list")["leases"] == []


# ---------------------------------------------------------------------- what a token may


def test_a_token_reads_what_its_filters_cover_and_nothing_else(served_one: Any) -> None:
    """Filter by filter, as at SUBSCRIBE: asking for more is refused, and not narrowed."""
    broker = served_one
    with caller(broker, SECRET) as reader:
        assert [row.topic for row in reader.everything(broker, "plant/1/+")] == [b"plant/1/t"]
        (unit,) = reader.plan("plant/1/#")
        for wanted in (["#"], ["plant/+/t"], ["plant/1/t", "plant/2/t"], ["$SYS/#"]):
            answer = reader.scan(broker, unit, *wanted)
            assert answer.end["error"] == "FORBIDDEN" and answer.end["what"] in wanted and not answer.rows
            assert reader.ask("PLAN", **{**PLAN, "from_": PLAN["from"], "filters": wanted})["error"] == "FORBIDDEN"
            assert reader.ask("STATS", filters=wanted)["error"] == "FORBIDDEN"
        assert reader.scan(broker, unit).end["error"] == "REQUEST", "no filter at all is everything"
        assert reader.append(said(b"plant/1/t"))["error"] == "FORBIDDEN"


def test_a_token_that_is_changed_or_taken_away_counts_at_the_next_request() -> None:
    """Whoever is connected already is no exception: an error, and never an empty answer."""
    with served(said(b"plant/1/t", b"x"), tokens=[lake()]) as broker, caller(broker, SECRET) as reader, caller(broker) as own:
        (unit,) = reader.plan("plant/1/#")
        assert len(reader.scan(broker, unit, "plant/1/#").rows) == 1
        broker.desk.keys.change([lake(filters=("plant/2/#",))])
        answer = reader.scan(broker, unit, "plant/1/#")
        assert answer.end["error"] == "FORBIDDEN" and not answer.rows
        broker.desk.keys.change([])
        answer = reader.scan(broker, unit, "plant/2/#")
        assert answer.end["error"] == "TOKEN" and "lake" in answer.end["sentence"] and not answer.rows
        assert reader.is_over() and own.cut() > 0


def test_a_generation_that_is_dropped_while_it_is_looked_at_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the list of generations and what is read of one; the next look sees what is left."""
    with served(said(b"a")) as broker, caller(broker) as reader:
        fields = {**PLAN, "to": {"0": reader.cut()}, "clients": None, "shards": None}
        view = broker.views.fresh([0])[0].view

        def gone(*_: object) -> None:
            monkeypatch.undo()
            raise GenerationDropped(1)

        for verb in ("PLAN", "CUTS"):
            monkeypatch.setattr(type(view), "counted" if verb == "PLAN" else "total", gone)
            answer = reader.ask(verb, **fields)
            assert answer["error"] == "AWAY" and "dropped" in answer["sentence"]
            assert "error" not in reader.ask(verb, **fields)


def test_a_token_has_leases_of_its_own_name_alone(served_one: Any) -> None:
    """Whoever could end another's lease could lose its messages."""
    broker = served_one
    lease: dict[str, Any] = {
        "do": "put",
        "ttl_ms": 10**6,
        "max_age_ms": None,
        "max_bytes": None,
        "block": False,
        "filters": [],
        "start": "latest",
    }
    with caller(broker) as own, caller(broker, SECRET) as reader:
        for name in ("lake", "lake.1"):
            assert [found["name"] for found in reader.ask("LEASE", **{**lease, "name": name, "filters": ["plant/1/+"]})["leases"]] == [name]
        assert own.ask("LEASE", **{**lease, "name": "other"})["leases"]
        for name in ("other", "lakes", "lake-1"):
            for do in ("put", "ack", "drop"):
                assert reader.ask("LEASE", **{**lease, "name": name, "do": do, "to": {"0": 1}})["error"] == "FORBIDDEN"
        assert reader.ask("LEASE", **{**lease, "name": "lake.2", "block": True})["error"] == "FORBIDDEN"
        assert reader.ask("LEASE", **{**lease, "name": "lake.2", "filters": ["#"]})["error"] == "FORBIDDEN"
        assert [found["name"] for found in reader.ask("LEASE", do="list")["leases"]] == ["lake", "lake.1"]
        assert len(own.ask("LEASE", do="list")["leases"]) == 3
        for name in ("lake", "lake.1", "other"):
            assert own.ask("LEASE", do="drop", name=name)["leases"] == []


def test_another_store_id_is_refused_with_both(served_one: Any) -> None:
    """Offsets of a store that was restored or replaced are never taken for this one's."""
    broker = served_one
    with caller(broker) as reader:
        reader.wire.send_json({"verb": "SCAN", **UNIT, "store": "0123456789abcdef:2"})
        answer = reader.wire.receive_json()
        assert (answer["error"], answer["found"], answer["wanted"]) == ("STORE", "0123456789abcdef:2", STORE)


# ---------------------------------------------------------------------- shards and files that do not answer


def test_a_shard_that_is_away_is_said_to_be_and_asked_again_when_it_is_back() -> None:
    """With its number; the other requests of the connection go on."""
    with served(said(b"a", b"1"), n_shards=2) as broker, caller(broker) as reader:
        (unit, *_) = reader.plan("#")
        broker.shards.away = {1}
        answer = reader.ask("CUTS")
        assert (answer["error"], answer["shard"]) == ("AWAY", 1)
        assert "trailer" in reader.scan(broker, {**unit, "shard": 0}, "#").end, "its files are enough for what was told before"
        assert reader.append(said(b"a", b"2", b"x"), said(b"a", b"2", b"c1"), said(b"a", b"2", b"c2"))["error"] == "AWAY"
        broker.shards.away = set()
        assert len(reader.ask("CUTS")["shards"]) == 2


def test_files_that_cannot_be_followed_are_away_and_what_cannot_be_read_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may pass; the second does not, and is never an empty answer."""
    with served(said(b"a", b"1")) as broker, caller(broker) as reader:
        (unit,) = reader.plan("#")
        view = broker.views.fresh([0])[0].view
        broker.views._within_s = 0.0
        cases: list[tuple[Exception, str]] = [
            (StoreDamaged("a block has the wrong checksum"), "DAMAGED"),
            (StoreFailed("it is closed"), "AWAY"),
        ]
        for error, code in cases:

            def broken(*_: object, error: Exception = error) -> None:
                raise error

            with monkeypatch.context() as patched:
                patched.setattr(view, "bulk", broken)
                answer = reader.scan(broker, unit, "#")
                assert (answer.end["error"], answer.end["shard"]) == (code, 0) and not answer.rows
            with monkeypatch.context() as patched:
                patched.setattr(view, "catch_up", broken)
                assert reader.ask("CUTS")["error"] == "AWAY"
        assert len(reader.scan(broker, unit, "#").rows) == 1


# ---------------------------------------------------------------------- bounds


def test_without_a_slot_a_scan_is_busy_and_the_rest_is_answered() -> None:
    """Scans that are under way hold theirs; when one ends, the next may begin."""
    with served(said(b"a", b"1"), max_scans=1) as broker, caller(broker) as reader:
        (unit,) = reader.plan("#")
        assert broker.desk.slots.take(0)
        answer = reader.scan(broker, unit, "#")
        assert answer.end["error"] == "BUSY" and answer.end["retry_after"] > 0
        assert reader.ask("STATS", filters=["#"])["error"] == "BUSY"
        assert reader.cut() > 0
        broker.desk.slots.give()
        assert len(reader.scan(broker, unit, "#").rows) == 1
        assert broker.desk.slots.taken == 0


def test_more_connections_than_are_allowed_are_told_so() -> None:
    """And closed; when one has ended, there is room again."""
    with served(said(b"a"), max_connections=2) as broker:
        with caller(broker) as first, caller(broker):
            for _ in range(3):
                with stranger(broker) as other:
                    answer = other.hello(TOKEN)
                    assert answer["error"] == "BUSY" and answer["retry_after"] > 0 and other.is_over()
            assert first.cut() > 0
        assert broker._doors is not None
        doors = broker._doors
        _until(lambda: doors.connections == 0)
        with caller(broker) as again:
            assert again.cut() > 0


def test_whoever_closes_early_is_no_error_and_leaves_nothing(served_many: Any) -> None:
    """A task that has enough closes its socket: a debug line, no slot, no thread."""
    broker = served_many
    with capture_logs() as logs:
        for _ in range(3):
            with caller(broker) as reader:
                (unit,) = reader.plan("#")
                reader.wire.send_json({"verb": "SCAN", **UNIT, "to": unit["to"]})
                assert reader.wire.receive().kind == Kind.BLOCK
        _until(lambda: broker._doors.connections == 0)
    assert broker.desk.slots.taken == 0
    assert {each["log_level"] for each in logs} == {"debug"}, logs


@pytest.fixture(scope="module")
def served_many() -> Any:
    with served(*[said(b"t/%d" % (n % 3), bytes(64_000)) for n in range(600)]) as broker:
        yield broker


def test_a_slow_client_costs_one_block_and_its_buffer(served_many: Any) -> None:
    """Nothing is read ahead of who does not take it: what was read is at most what it was sent, and a block."""
    broker = served_many
    view = broker.views.fresh([0])[0].view
    read = 0
    before = view.bulk

    def counted(*arguments: Any) -> Any:
        nonlocal read
        columns = before(*arguments)
        read += sum(map(len, columns.values))
        return columns

    view.bulk = counted
    try:
        with caller(broker) as reader:
            (unit,) = reader.plan("#")
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            reader.wire.send_json({"verb": "SCAN", **UNIT, "to": unit["to"]})
            seen, still = 0, 0
            while still < 5:
                # It stands still when the sockets are full; five looks, as a busy machine stops for longer than one.
                seen, still = read, still + 1 if seen == read > 0 else 0
                time.sleep(0.1)
            assert 0 < read < 600 * 64_000 - 2 * BLOCK_BYTES_MAX, "all of it is more than sockets hold"
            assert len(reader.scanned().rows) == 600
        assert read >= 600 * 64_000
    finally:
        del view.bulk


def test_bytes_a_second_are_kept_by_all_scans_together() -> None:
    """Two readers at once are no faster than one; blocks are small enough that nobody waits long for one."""
    with served(*[said(b"t", bytes(1000)) for n in range(400)], bytes_per_s=1 << 20, max_scans=64) as broker:
        began = time.monotonic()
        sizes: list[list[tuple[int, int]]] = []

        def read() -> None:
            with caller(broker) as reader:
                sizes.append(reader.scan(broker, reader.plan("#")[0], "#").sizes)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert time.monotonic() - began > 0.35, "800 KB at 1 MiB/s, of which a quarter of a second may go at once"
        assert all(size <= (1 << 20) * 10 // 64 for each in sizes for _, size in each) and len(sizes) == 2


def test_a_scan_that_finds_little_says_that_it_goes_on() -> None:
    """Empty blocks: whoever waits for the next frame would give up otherwise."""
    from actors.reader.scanning import Scan, blocks

    with served(*[said(b"t/%d" % n, b"x") for n in range(20)]) as broker, caller(broker) as reader:
        cut = reader.cut()
        now = iter(range(0, 1000, 3))
        found = list(
            blocks(broker.views.fresh([0])[0].view, Scan(1, -1, cut - 1, (b"#",), frozenset({b"nobody"})), clock=lambda: next(now))
        )
        assert len(found) >= 5 and not any(rows.rows for rows in found)


def test_a_stopped_reader_ends_its_connections_and_frees_its_port() -> None:
    """Whoever waits is not left waiting, and the next one may listen there."""
    with served(said(b"a")) as broker:
        with caller(broker) as reader:
            broker.shut()
            assert reader.is_over()
        with pytest.raises(OSError):
            socket.create_connection((broker.host, broker.port), WAIT_S).close()
        broker.open()
        with caller(broker) as reader:
            assert reader.cut() > 0


def _until(done: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)
