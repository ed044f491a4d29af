"""`holdfast storage`, over real stores that another engine holds open, and over damaged ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from actors.clocks import read_clocks
from actors.datadir import open_data_directory
from cli.storage import app
from shards.classes import CLASSES_ROW, ClassMap, RetentionClass
from shards.clock import AgeMark
from shards.engine import HOME_FAMILY, Op, index_of
from shards.engine_rocks import RocksEngine
from shards.frames import Place
from shards.layouts.paged_index.pages import PAGE_PREFIX
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.rows import ACTIVE, META, PLACE, SUBSCRIPTION, SubscriptionRow, client_key, pack_place, pack_row, u64
from shards.store import Store

HOUR_MS = 3_600_000


class Kept:
    """A data directory of one shard, whose store is open and being written: what a running broker has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        open_data_directory(path, n_shards=None, n_shards_new=1).close()
        self.engine = RocksEngine(str(path / "shards" / "0"))
        self.store = Store.open(self.engine, StoreOptions(thresholds=(100, 2)))
        self.last = 0

    def publish(self, *topics: bytes, at_ms: int = 1_000_000) -> None:
        ops: list[Op] = []
        for topic in topics:
            self.last += 1
            self.store.note_time(ops, self.last, at_ms)
            self.store.append(ops, self.store.key_of(topic), self.last, encode_message(1, at_ms, b"sensor", topic, b"\0payload"))
        self.store.flush(ops)
        self.write([*self.store.take_growth(), *ops])

    def roll(self, age_ms: int) -> None:
        self.last += 1
        self.write(self.store.roll(self.last, age_ms, age_ms))

    def subscription(self, client: bytes, topic_filter: bytes, read_upto: int) -> None:
        row = SubscriptionRow(topic_filter, 1, 0, 0, ACTIVE, [(0, 0)])
        place = client_key(PLACE, client, u64(7) + b"\0")
        self.write(
            [
                (HOME_FAMILY, client_key(SUBSCRIPTION, client, u64(7)), pack_row(row)),
                (HOME_FAMILY, place, pack_place(Place(read_upto))),
            ]
        )

    def age(self, age_ms: int) -> None:
        self.write([(HOME_FAMILY, META + b"age", AgeMark(age_ms, read_clocks(), False).encode())])

    def write(self, ops: list[Op]) -> None:
        self.engine.write([*ops, (HOME_FAMILY, META + b"position", pack_row((self.last,)))])

    def ask(self, *words: str) -> Any:
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--data-dir", str(self.path)])


def pages(engine: RocksEngine) -> list[tuple[bytes, bytes]]:
    return engine.scan(index_of(1), PAGE_PREFIX, PAGE_PREFIX + b"\xff" * 40, 1000)


def pages_of_an_index(kept: Kept) -> list[tuple[bytes, bytes]]:
    """Of fifty devices with four messages each, in a generation that is sealed."""
    kept.publish(*(b"device/%d" % (n % 50) for n in range(200)))
    kept.roll(1)
    while kept.store.idle_work(kept.last):
        pass
    return pages(kept.engine)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path / "d")
    yield made
    made.engine.close()


def test_info_shows_what_a_running_broker_has_written_a_moment_ago(kept: Kept) -> None:
    """Generations, streams and rows, with the store held open by another."""
    kept.publish(b"plant/1/temp", b"plant/2/temp", b"plant/3/temp", b"plant/4/temp")
    kept.roll(1)
    kept.publish(b"plant/5/temp")
    kept.subscription(b"reader", b"plant/#", 2)
    (shard,) = kept.ask("info")
    assert shard["position"] == kept.last and not shard["age_suspended"] and shard["lost"] == []
    assert [(one["generation"], one["until"]) for one in shard["generations"]] == [(1, 5), (2, None)]
    assert shard["rows"]["subscriptions"] == shard["rows"]["places"] == 1
    assert "generation    2  pagestream" in kept.run("info").stdout


def test_generations_are_shown_with_their_class_and_go_by_its_period(kept: Kept) -> None:
    """A column where there is more than one class; what expires when is said by the class, not by the default."""
    kept.publish(b"gold/1", b"x")
    kept.store.change(StoreOptions(classes=ClassMap((RetentionClass("gold", b"gold/#", 1000 * HOUR_MS),))))
    kept.roll(HOUR_MS)
    kept.publish(b"gold/1", b"x")
    kept.roll(HOUR_MS)
    kept.age(9 * HOUR_MS)
    (shard,) = kept.ask("info")
    assert [one["class"] for one in shard["generations"]] == ["default", "default", "gold", "default", "gold"]
    assert "generation    3  gold     pagestream" in kept.run("info").stdout
    for command in (("explain", "#"), ("retention", "--dry-run")):
        rows = kept.ask(*command)
        expires = {row["generation"]: row["expires"] for row in rows if row["generation"] in (2, 3)}
        assert expires[3].startswith(("in 992h", "in 35711", "in 35712")) and expires[2] != expires[3], expires
        assert [row["class"] for row in rows][2] == "gold"
        assert "generation 3 of class gold" in kept.run(*command).stdout
    assert "generation 3 of class gold" in kept.run("du").stdout and "generation 2 of" not in kept.run("du").stdout
    assert kept.run("verify").exit_code == 0


def test_verify_finds_a_class_without_a_generation(kept: Kept) -> None:
    """Messages of that class could not be stored."""
    kept.write([(HOME_FAMILY, CLASSES_ROW, ClassMap((RetentionClass("gold", b"gold/#", 5),)).encode(0))])
    found = kept.run("verify")
    assert found.exit_code == 1 and "retention class gold has 0 current generations and should have 1" in found.stdout


def test_ls_names_streams_by_what_their_topics_have_in_common(kept: Kept) -> None:
    """A level that varies is a +; a filter leaves out what cannot match."""
    kept.publish(*(b"plant/%d/temp" % n for n in range(4)), b"office/door")
    assert {row["topics"] for row in kept.ask("ls")} == {"plant/0/temp", "plant/1/temp", "plant/+/temp", "office/door"}
    assert [row["topics"] for row in kept.ask("ls", "office/#")] == ["office/door"]


def test_explain_counts_what_a_filter_reads_and_says_how(kept: Kept) -> None:
    """Messages and bytes by generation; a constrained level is read through an index; expiry by the age of the store."""
    kept.publish(*(b"plant/%d/temp" % n for n in range(5)))
    kept.roll(HOUR_MS)
    kept.age(2 * HOUR_MS)
    old, new = kept.ask("explain", "plant/4/temp", "--set", "durable_sessions.message_retention_period=3h")
    assert (old["messages"], new["messages"]) == (1, 0)
    assert [(stream["topics"], stream["index_lists"]) for stream in old["streams"]] == [("plant/+/temp", 1)]
    assert old["expires"].startswith(("in 2h", "in 1h59m", "in 7199s", "in 7198s", "in 7200s")), old["expires"]
    assert new["expires"] == "not before it is sealed"


def test_dump_prints_messages_from_a_time_on(kept: Kept) -> None:
    """The body is whole; what was published before the time asked for is left out."""
    kept.publish(b"a/b", at_ms=1_000_000)
    kept.publish(b"a/b", b"x", at_ms=9_000_000)
    rows = [json.loads(line) for line in kept.run("dump", "a/#", "--json").stdout.splitlines()]
    assert [(row["topic"], row["published_at_ms"]) for row in rows] == [("a/b", 1_000_000), ("a/b", 9_000_000)]
    assert base64.b64decode(rows[0]["body"]) == b"\0payload" and rows[0]["publisher"] == "sensor"
    later = kept.run("dump", "a/#", "--since", "1970-01-01T01:00", "--json").stdout.splitlines()
    assert [json.loads(line)["published_at_ms"] for line in later] == [9_000_000]
    assert "sensor a/b qos 1" in kept.run("dump", "a/#", "--limit", "1").stdout


def test_retention_tells_which_sessions_would_lose_what(kept: Kept) -> None:
    """Only what a session has not read counts, and only of its filter; a reader at the end loses nothing."""
    kept.publish(b"a/1", b"a/2", b"b/1")
    kept.roll(HOUR_MS)
    kept.age(HOUR_MS)
    kept.subscription(b"slow", b"a/#", 1)
    kept.subscription(b"done", b"#", kept.last)
    old, current = kept.ask("retention", "--dry-run")
    assert [(row["client"], row["messages"]) for row in old["unread"]] == [("slow", 1)]
    assert current["unread"] == []
    assert "slow would lose 1 messages of a/#" in kept.run("retention", "--dry-run").stdout


def test_verify_reads_everything_and_finds_what_is_wrong(kept: Kept) -> None:
    """Exit 0 for a whole store; a message of another stream, of no known format, and an unknown row are each named."""
    kept.publish(b"a/b", b"$x/y", b"c")
    assert kept.run("verify").exit_code == 0
    ops: list[Op] = []
    kept.last += 1
    kept.store.append(ops, kept.store.key_of(b"a/b"), kept.last, encode_message(0, 0, b"p", b"c/d/e", b"\0"))
    kept.last += 1
    kept.store.append(ops, kept.store.key_of(b"$x/y"), kept.last, b"\x09 nonsense of sixteen bytes or more")
    kept.store.flush(ops)
    kept.write([*ops, (HOME_FAMILY, b"?what", b"")])
    result = kept.run("verify")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    for part in ("topic c/d/e lies in the stream of a/b", "begins with 09", "is of no known kind"):
        assert part in result.stdout


def test_verify_compares_an_index_with_the_messages_it_is_of(kept: Kept) -> None:
    """A page that is lost is named by its stream, while every message can still be read."""
    page, *_ = pages_of_an_index(kept)
    assert kept.run("verify").exit_code == 0
    kept.engine.write([(index_of(1), page[0], None)])
    result = kept.run("verify")
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"shard 0: generation 1, index of stream {page[0][8:16].hex()}, level 1, segment 0 for positions 0 to ")
    assert " entries, of which " in line and line.endswith(" were written")
    assert len(kept.run("dump", "device/#").stdout.splitlines()) == 200


def test_reindex_makes_anew_what_verify_has_found(kept: Kept) -> None:
    """It wants the store for itself, says what was wrong, and finds nothing the next time."""
    page, *_ = pages_of_an_index(kept)
    kept.engine.write([(index_of(1), page[0], None)])
    (fault,) = kept.run("verify").stdout.splitlines()
    refused = kept.run("reindex")
    assert refused.exit_code == 1 and "another process has this store open" in refused.stderr
    kept.engine.close()
    mended = kept.run("reindex")
    assert (mended.exit_code, mended.stdout) == (0, f"{fault}: made anew\n")
    assert kept.run("verify").exit_code == 0 and len(kept.run("dump", "device/7").stdout.splitlines()) == 4
    again = kept.run("reindex")
    assert (again.exit_code, again.stdout) == (0, "1 shard read, every index says what its messages say\n")


def test_reindex_leaves_an_index_whose_messages_cannot_be_read(kept: Kept) -> None:
    """One sentence and exit 1; what is there of it stays."""
    page, *_ = pages_of_an_index(kept)
    (message,) = kept.engine.scan(1, page[0][8:16], page[0][8:16] + b"\xff" * 18, 1)
    kept.engine.write([(index_of(1), page[0], None), (1, message[0], b"\x01 short")])
    there = len(pages(kept.engine))
    found = kept.run("verify")
    assert found.exit_code == 1 and "stored message of 7 bytes" in found.stdout
    kept.engine.close()
    refused = kept.run("reindex")
    assert refused.exit_code == 1 and "cannot be made anew: stored message of 7 bytes" in refused.stderr
    kept.engine = RocksEngine(str(kept.path / "shards" / "0"))
    assert len(pages(kept.engine)) == there


def test_compact_wants_the_store_for_itself(kept: Kept) -> None:
    """While a broker has it, one sentence and exit 1; afterwards it is done."""
    kept.publish(*(b"t/%d" % n for n in range(50)))
    refused = kept.run("compact")
    assert refused.exit_code == 1 and "another process has this store open" in refused.stderr
    kept.engine.close()
    assert kept.run("compact").exit_code == 0
    assert kept.run("verify").exit_code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("ls", "a/#/b"), "is no topic filter"),
        (("dump", "#", "--since", "yesterday"), "is no time"),
        (("retention",), "add --dry-run"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(kept: Kept, words: tuple[str, ...], sentence: str) -> None:
    """Exit 2, and what was wanted."""
    result = kept.run(*words)
    assert result.exit_code == 2 and sentence in result.stderr


def test_a_directory_that_is_no_broker_s_is_refused(tmp_path: Path) -> None:
    """Exit 1; nothing is made there."""
    result = CliRunner().invoke(app, ["info", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1 and "no site.json" in result.stderr
    assert list(tmp_path.iterdir()) == []
