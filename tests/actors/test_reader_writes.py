"""Messages that come by the reader are taken once; leases are in all shards alike; what is told of the store fits what is in it."""

from __future__ import annotations

from typing import Any

from config.pipeline import Token
from shards.frames import Append, LeasePut
from tests.actors.calling import Caller, caller
from tests.actors.served import NEVER_MS, Said, said, served
from tests.actors.test_reader_protocol import SECRET, lake

LEASE: dict[str, Any] = {"ttl_ms": 10**9, "max_age_ms": None, "max_bytes": 5000, "block": False, "filters": ["a/#"], "start": "earliest"}


def payloads(reader: Caller, broker: Any) -> list[bytes]:
    return sorted(row.payload for row in reader.everything(broker, "#"))


# ---------------------------------------------------------------------- APPEND


def test_a_block_is_taken_once_however_often_it_is_sent() -> None:
    """Each message is stored where its client is at home, and a block that was taken is said to be."""
    block = [said(b"a/%d" % n, b"%d" % n, b"c%d" % n) for n in range(10)]
    with served(n_shards=2) as broker, caller(broker) as reader:
        assert reader.append(*block, batch=3, block=1) == {"stored": 10, "repeated": False}
        for _ in range(2):
            assert reader.append(*block, batch=3, block=1) == {"stored": 0, "repeated": True}
        assert reader.append(*block, batch=2, block=9)["repeated"], "an older batch is older, whatever its block"
        assert reader.append(said(b"a/1", b"more", b"c1"), batch=3, block=2)["stored"] == 1
        assert reader.append(said(b"a/1", b"another", b"c1"), writer="another", batch=3, block=2)["stored"] == 1
        assert payloads(reader, broker) == sorted([b"%d" % n for n in range(10)] + [b"more", b"another"])
        for row in reader.everything(broker, "#"):
            home = broker.shards.table.shard_of(row.client)
            assert row in reader.scan(broker, reader.plan("#")[home], "#").rows


def test_a_block_that_reached_one_shard_alone_is_completed_when_it_comes_again() -> None:
    """No message is lost and none is there twice, though nobody knows which of them were taken."""
    block = [said(b"a", b"%d" % n, b"c%d" % n) for n in range(10)]
    with served(n_shards=2) as broker, caller(broker) as reader:
        of_one = [each for each in block if broker.shards.table.shard_of(each.client) == 1]
        part = Append(
            b"w", 0, 0, 0, [m.client for m in of_one], b"\2" * len(of_one), [m.topic for m in of_one], [b"\0" + m.payload for m in of_one]
        )
        broker.shards.ask({1: part})
        broker.shards.away = {1}
        assert reader.append(*block)["error"] == "AWAY"
        broker.shards.away = set()
        assert reader.append(*block) == {"stored": 10 - len(of_one), "repeated": False}
        assert payloads(reader, broker) == [b"%d" % n for n in range(10)]


def test_an_append_is_refused_as_a_whole_and_what_is_behind_it_is_read() -> None:
    """Its frame of messages is taken from the wire whatever the answer is, so the next request is one."""
    writer = lake(write=True)
    with served(tokens=[writer]) as broker, caller(broker, SECRET) as reader:
        assert reader.append(said(b"plant/1/t"), said(b"plant/2/t"))["error"] == "FORBIDDEN"
        assert reader.append(said(b"plant/1/t"), rows=2)["error"] == "REQUEST"
        assert reader.append(said(b"plant/1/t"), writer="")["error"] == "REQUEST"
        assert reader.append(said(b"plant/1/t"), batch=-1)["error"] == "REQUEST"
        assert reader.append(said(b"plant/1/#"))["error"] == "REQUEST", "a filter is no topic"
        assert reader.append(Said(b"plant/1/t", b"", properties=b"\x05\x01"))["error"] == "REQUEST", "properties that end early"
        assert reader.append(said(b"plant/1/t", b"good"))["stored"] == 1
    with served() as broker, caller(broker) as reader:
        assert reader.append(said(b"$SYS/x"))["error"] == "REQUEST"
        assert payloads(reader, broker) == []


def test_a_shard_without_room_says_full_and_takes_the_same_block_later() -> None:
    """As a publisher is refused when the disk or the quota is full."""
    with served() as broker, caller(broker) as reader:
        broker.shards.cores[0].space(2)
        answer = reader.append(said(b"a", b"1"))
        assert (answer["error"], answer["shard"]) == ("FULL", 0)
        broker.shards.cores[0].space(0)
        assert reader.append(said(b"a", b"1")) == {"stored": 1, "repeated": False}


# ---------------------------------------------------------------------- LEASE


def test_a_lease_is_made_in_every_shard_acknowledged_by_cuts_and_dropped() -> None:
    """What is acknowledged is everything below a cut; a place only grows."""
    with served(said(b"a/1", b"x", b"c0"), said(b"a/1", b"y", b"c1"), n_shards=2) as broker, caller(broker) as reader:
        (made,) = reader.ask("LEASE", do="put", name="lake", **LEASE)["leases"]
        assert made["name"] == "lake" and made["to"] == {"0": 0, "1": 0} and made["max_age_ms"] is None and made["max_bytes"] == 5000
        cuts = {str(shard): found["cut"] for shard, found in reader.cuts().items()}
        (acked,) = reader.ask("LEASE", do="ack", name="lake", to=cuts)["leases"]
        assert acked["to"] == cuts and acked["losses"] == 0
        (again,) = reader.ask("LEASE", do="ack", name="lake", to={"0": 5})["leases"]
        assert again["to"] == cuts
        (renewed,) = reader.ask("LEASE", do="put", name="lake", **{**LEASE, "filters": []})["leases"]
        assert renewed["to"] == cuts and renewed["filters"] == []
        assert [found["name"] for found in reader.ask("LEASE", do="list")["leases"]] == ["lake"]
        assert reader.ask("LEASE", do="drop", name="lake")["leases"] == [] == reader.ask("LEASE", do="list")["leases"]
        assert reader.ask("LEASE", do="drop", name="lake")["error"] == "REQUEST"


def test_a_new_lease_begins_where_it_is_told_to() -> None:
    """earliest is before everything there is, latest behind it, and a cut of each shard is that cut."""
    with served(said(b"a/1", b"x")) as broker, caller(broker) as reader:
        cut = reader.cut()
        (late,) = reader.ask("LEASE", do="put", name="late", **{**LEASE, "start": "latest"})["leases"]
        (at,) = reader.ask("LEASE", do="put", name="at", **{**LEASE, "start": {"0": cut - 1}})["leases"]
        assert late["to"]["0"] >= cut and at["to"]["0"] == cut - 1


def test_a_lease_that_lost_something_says_what() -> None:
    """In half-open ranges, as everywhere on this protocol."""
    with served(said(b"a/1", b"x"), retention_ms=1000, generation_ms=1000) as broker, caller(broker) as reader:
        reader.ask("LEASE", do="put", name="lake", **{**LEASE, "max_age_ms": 0})
        sealed = reader.cuts()[0]["generations"][0]
        for _ in range(5):
            broker.shards.pass_time(60_000)
            broker.publish(said(b"a/1", b"y"))
        (lost,) = reader.ask("LEASE", do="list")["leases"]
        gone = reader.cuts()[0]["gone"]
        assert lost["losses"] >= 1 and lost["lost_from"] == {"0": 0} and sealed["id"] in {each["generation"] for each in gone}
        assert lost["lost_upto"] == {"0": max(each["to"] for each in gone)}


def test_as_many_leases_as_there_may_be_is_full_and_leaves_none_behind() -> None:
    """In every shard or in none."""
    with served(n_shards=2) as broker, caller(broker) as reader:
        for number in range(100):
            broker.shards.ask({1: LeasePut(b"%d" % number, NEVER_MS, 0, 0, False, [], -1)})
        assert reader.ask("LEASE", do="put", name="lake", **LEASE)["error"] == "FULL"
        assert "lake" not in {found["name"] for found in reader.ask("LEASE", do="list")["leases"]}


# ---------------------------------------------------------------------- STATS


def test_patterns_have_the_rows_and_bytes_that_lie_under_them() -> None:
    """Small streams are counted exactly; what retention would do and the leases are told beside."""
    messages = [said(b"plant/%d/t" % (n % 3), b"x" * (n % 7)) for n in range(100)]
    with served(*messages) as broker, caller(broker) as reader:
        broker.roll()
        broker.publish(said(b"other", b"y"))
        reader.ask("LEASE", do="put", name="lake", **LEASE)
        found = reader.ask("STATS", filters=["#"])
        rows = {(row["generation"], row["pattern"]): row for row in found["patterns"]}
        assert sum(row["rows"] for row in rows.values()) == 101 and not any(row["sampled"] for row in rows.values())
        assert rows[1, "plant/0/t"]["rows"] == 34
        values = [len(value) for value in (b"x" * (n % 7) for n in range(0, 100, 3))]
        head = rows[1, "plant/0/t"]["bytes"] - sum(values)
        assert head == 34 * (16 + len(b"publisher") + len(b"plant/0/t") + 1)
        assert [lease["name"] for lease in found["leases"]] == ["lake"]
        assert [each["generation"] for each in found["retention"]["generations"]] == [1] and found["retention"]["quota_level"] == 0
        some = reader.ask("STATS", filters=["plant/1/#"])["patterns"]
        assert {row["pattern"] for row in some} == {"plant/1/t"} and sum(row["rows"] for row in some) == 33


def test_of_a_large_stream_the_rest_is_estimated() -> None:
    """And said to be; all estimates of a generation together are what it says that it holds."""
    messages = [said(b"large", b"x") for _ in range(5000)]
    with served(*messages) as broker, caller(broker) as reader:
        (row,) = reader.ask("STATS", filters=["#"])["patterns"]
        assert row["sampled"] and row["rows"] == 5000


def test_a_token_sees_its_own_leases_in_stats() -> None:
    """As in LEASE."""
    tokens: list[Token] = [lake()]
    with served(tokens=tokens) as broker, caller(broker) as own, caller(broker, SECRET) as reader:
        for name in ("lake.x", "other"):
            own.ask("LEASE", do="put", name=name, **LEASE)
        assert [lease["name"] for lease in reader.ask("STATS", filters=["plant/1/#"])["leases"]] == ["lake.x"]
