"""The archive against a real store: every message once, nothing acknowledged before it is kept; what is wrong stops it, with a sentence."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_spark.archive_tasks import Failed, decode, encode
from holdfast_spark.client import Client, Endpoint, Unit
from holdfast_spark.parquet_units import Piece, ReadUnit, WrittenFile
from pipeline import archive
from pipeline.archive import USUAL, Done, Options
from pipeline.archive_compact import compact
from pipeline.archive_files import clear, parquet_files
from pipeline.archive_plan import GenerationSeen, Range, Seen, acknowledged, next_round, tasks_of, units_of
from pipeline.archive_verify import verify
from pipeline.archive_work import compared
from pipeline.archived import ArchiveError, Lost, Reached, SparkEnded, State
from tests.actors.served import STORE, Said, Served
from tests.pipeline.archives import (
    archived,
    endpoint,
    keys_in,
    keys_of,
    lease,
    messages,
    places_in,
    rows_in,
    state_of,
    store,
    with_room_for,
)

LIVE = replace(USUAL, live_after_ms=0)


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[Served, list[Said]]]:
    """A store that tests only read: three sealed generations, a current one, two shards."""
    with store(per_generation=40) as found:
        yield found


@pytest.fixture
def mine(request: pytest.FixtureRequest) -> Options:
    """With a lease of the test's own."""
    return replace(USUAL, lease=f"of-{abs(hash(request.node.name))}")


# ---------------------------------------------------------------------------------------------- the whole of it


def test_sealed_generations_are_archived_and_released(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """Exactly what was published, `$` topics too; the lease goes up to what is still current; once more does nothing."""
    broker, published = shop
    done = archived(broker, tmp_path, mine)
    assert keys_in(tmp_path) == keys_of(published[:120]) and (done.rows, done.commits) == (120, 1)
    with Client(endpoint(broker)) as client:
        current = {shard: found["generations"][-1]["since"] for shard, found in client.cuts()["shards"].items()}
    assert lease(broker, mine.lease or "") == {int(shard): since for shard, since in current.items()} == done.acknowledged
    assert archived(broker, tmp_path, mine).commits == 0 and state_of(tmp_path).number == 1
    assert all((tmp_path / path).exists() for path in state_of(tmp_path).files)
    assert list((tmp_path / "_staging").iterdir()) == []


@pytest.mark.slow
def test_what_is_current_is_archived_on_request_and_goes_on_there(tmp_path: Path) -> None:
    """Part by part, and the sealed rest afterwards; the count of the store is met at the end of the generation."""
    with store(per_generation=10, generations=1) as (broker, published):
        assert archived(broker, tmp_path, LIVE).rows == 20
        for number in range(3):
            published += (more := messages(8, 50 + number))
            broker.publish(*more)
            assert archived(broker, tmp_path, LIVE).rows == 8
        released = lease(broker)
        published += (more := messages(8, 70))
        broker.publish(*more)
        broker.roll()
        assert archived(broker, tmp_path).rows == 8
        assert keys_in(tmp_path) == keys_of(published) and len(places_in(tmp_path)) == len(published)
        after = lease(broker)
        assert released is not None and after is not None and all(after[shard] > released[shard] for shard in after)
        assert verify(tmp_path).problems == []


@pytest.mark.slow
def test_a_generation_in_which_nothing_happens_holds_nothing(tmp_path: Path) -> None:
    """The lease goes up to the cut when all that is current is empty, without a commit."""
    with store(per_generation=10, generations=1) as (broker, _):
        broker.roll()
        with Client(endpoint(broker)) as client:
            cuts = {int(shard): found["cut"] for shard, found in client.cuts()["shards"].items()}
        released = archived(broker, tmp_path).acknowledged
        assert lease(broker) == released and all(released[shard] >= cut for shard, cut in cuts.items())
        assert state_of(tmp_path).number == 1


def test_only_some_topics(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """Those of the filters; and an archive of one choice is not continued with another."""
    broker, published = shop
    archived(broker, tmp_path, replace(mine, filters=("plant/2/+",)))
    assert keys_in(tmp_path) == keys_of([each for each in published[:120] if each.topic.startswith(b"plant/2/")])
    with pytest.raises(ArchiveError, match=r"is an archive of plant/2/\+, and everything is asked for"):
        archived(broker, tmp_path, mine)


@pytest.mark.slow
def test_rounds_are_bounded(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """One generation at least, no more than asked for; what is left is said."""
    broker, published = shop
    small = replace(mine, round_bytes=1)
    first = archived(broker, tmp_path, small, rounds_max=2)
    assert first.commits == 2 and first.waiting_bytes > 0
    rest = archived(broker, tmp_path, small)
    assert rest.commits == 4 and rest.waiting_bytes == 0 and keys_in(tmp_path) == keys_of(published[:120])


@pytest.mark.slow
def test_a_run_ends_though_generations_end_faster_than_its_rounds(tmp_path: Path) -> None:
    """It takes what had begun when it began; what comes in each of its rounds is for the next run."""
    with store(per_generation=10, generations=2) as (broker, published):
        came: list[Said] = []

        def step(name: str) -> None:
            if name == "committing" and len(came) < 100:
                came.extend(more := messages(4, 100 + len(came)))
                broker.publish(*more)
                broker.roll()

        done = archived(broker, tmp_path, step=step)
        # What was current at its beginning has ended meanwhile.
        assert done.commits == 2 and len(came) == 8
        assert keys_in(tmp_path) == keys_of([*published, *came[:4]])
        archived(broker, tmp_path)
        assert keys_in(tmp_path) == keys_of([*published, *came])


def test_watching_goes_on_after_a_failure(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """The sentence goes to the log; the next round does the work; it ends when it is told to."""
    broker, published = shop
    root = tmp_path / "root"
    root.write_text("in the way")
    rounds: list[Done] = []

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if root.is_file() and len(asked) > 2:
                root.unlink()
            elif rounds:
                self.set()
            return self.is_set()

    ended = Waiting()
    asked: list[str] = []

    def found() -> Endpoint:
        """A broker that is not up yet, then one whose reader was elsewhere, then where it is."""
        asked.append("")
        if len(asked) == 1:
            raise ArchiveError("the broker is not reached")
        return replace(endpoint(broker), token="another") if len(asked) == 2 else endpoint(broker)

    archive.watch(None, found, root, mine, 0.001, ended, rounds.append)
    assert sum(done.rows for done in rounds) == 120 and keys_in(root) == keys_of(published[:120])


class _Stopped:
    """As much of a session as is asked whether it has ended."""

    class sparkContext:
        _jsc = None


def test_watching_ends_with_its_spark(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """Going on without it would be a process that looks alive and archives nothing, until the lease is over."""
    with pytest.raises(SparkEnded, match="has ended; nothing was committed"):
        archive.watch(_Stopped(), lambda: endpoint(shop[0]), tmp_path, mine, 0.001, threading.Event())
    assert state_of(tmp_path).number == 0


# ---------------------------------------------------------------------------------------------- others at work


@pytest.mark.slow
def test_of_two_archivers_one_throws_its_files_away(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """The other has archived the same in the meantime: nothing is doubled, and no file is left over."""
    broker, published = shop

    def step(name: str) -> None:
        if name == "committing" and not state_of(tmp_path).number:
            archived(broker, tmp_path, mine)

    done = archived(broker, tmp_path, mine, step=step)
    assert done.races == 1 and done.commits == 0 and state_of(tmp_path).number == 1
    assert keys_in(tmp_path) == keys_of(published[:120])
    assert {path.relative_to(tmp_path).as_posix() for path in parquet_files(tmp_path)} == set(state_of(tmp_path).files)


@pytest.mark.slow
def test_a_commit_of_others_is_no_harm_when_it_takes_other_rows(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """It is committed upon: compaction and archive go on beside each other."""
    broker, published = shop
    archived(broker, tmp_path, replace(mine, round_bytes=1), rounds_max=3)
    files = len(state_of(tmp_path).files)

    def step(name: str) -> None:
        if name == "committing" and len(state_of(tmp_path).files) == files:
            assert compact(tmp_path).commits

    done = archived(broker, tmp_path, mine, step=step)
    assert done.races == 0 and done.commits == 1 and keys_in(tmp_path) == keys_of(published[:120])
    assert verify(tmp_path).problems == []


@pytest.mark.slow
def test_what_was_dropped_before_its_turn_is_written_down(tmp_path: Path) -> None:
    """As lost, once; what went before the archive began is not the archive's loss."""
    with store(per_generation=20, generations=2, n_shards=1) as (broker, published):
        broker.drop(1)
        assert archived(broker, tmp_path, replace(USUAL, lease=None)).lost == []
        broker.publish(*messages(20, 9))
        broker.roll()
        number = broker.shards.generations()[-2]
        broker.drop(number, reason="lease")
        done = archived(broker, tmp_path, replace(USUAL, lease=None))
        assert [(lost.generation, lost.reason) for lost in done.lost] == [(number, "lease")]
        assert archived(broker, tmp_path, replace(USUAL, lease=None)).lost == []
        assert [lost.generation for lost in state_of(tmp_path).lost] == [number]
        assert keys_in(tmp_path) == keys_of(published[20:40])


@pytest.mark.slow
def test_another_site_is_refused(tmp_path: Path) -> None:
    """Its positions mean something else. Another incarnation of the same site goes on."""
    with store(per_generation=10, generations=1) as (broker, _):
        archived(broker, tmp_path)
        broker.restart(STORE.replace("0", "f"))
        with pytest.raises(ArchiveError, match=r"is the archive of the site 0123456789abcdef, and this broker is the site f"):
            archived(broker, tmp_path)
        broker.restart(STORE.replace(":1", ":2"))
        broker.publish(*messages(10, 5))
        broker.roll()
        assert archived(broker, tmp_path).rows == 10 or archived(broker, tmp_path).commits == 0


# ---------------------------------------------------------------------------------------------- what goes wrong


def test_a_target_that_cannot_be_written_is_one_sentence(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """Before anything is read."""
    broker, _ = shop
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match=r"file/lake cannot be written to: Not a directory"):
        archived(broker, tmp_path / "file" / "lake", mine)


@pytest.mark.slow
def test_a_full_disk_stops_before_the_commit(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """One sentence, no commit, nothing acknowledged, nothing left; with room again everything is archived."""
    broker, _ = shop
    sentence = with_room_for(700, endpoint(broker), tmp_path, mine)
    assert sentence is not None and sentence.startswith("files cannot be written to ") and sentence.endswith("File too large")
    assert state_of(tmp_path).number == 0 and list(parquet_files(tmp_path)) == []
    assert lease(broker, mine.lease or "") == {0: 0, 1: 0} and list((tmp_path / "_staging").iterdir()) == []
    assert archived(broker, tmp_path, mine).rows == 120


def test_a_token_that_may_not_is_one_sentence(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """As is a reader that is not there."""
    broker, _ = shop
    with pytest.raises(ArchiveError, match="token is not one of this broker"):
        archive.run(None, replace(endpoint(broker), token="guessed"), tmp_path, mine)


UNIT = Unit(0, 1, 0, 10)
READ = ReadUnit(UNIT, 5, 77, 9)
FILE = WrittenFile("/x", 1, 5, 100, 1, 200, 0, 1, (Piece(UNIT, 5, 0, 9, 77, 9),))
RANGE = Range(0, 1, "default", 0, 10, 100, False, 5)


def test_reports_that_agree_are_let_through() -> None:
    """The range comes to what its units come to."""
    assert compared({RANGE: [UNIT]}, [READ, FILE], State(), counts=True) == (Reached(0, 1, 0, 10, 5, 77),)


@pytest.mark.parametrize(
    ("reports", "why"),
    [
        ([READ], "hold 0 rows"),
        ([FILE], "1 units were to be archived and 0 were reported"),
        ([READ, READ, FILE], "was read twice"),
        ([READ, replace(FILE, pieces=(replace(FILE.pieces[0], digest=78),))], "hold 5 rows with digest"),
        ([READ, replace(FILE, pieces=(replace(FILE.pieces[0], ts_sum=8),))], "hold 5 rows with digest"),
        ([READ, replace(FILE, pieces=(replace(FILE.pieces[0], rows=4),))], "hold 4 rows"),
        ([READ, FILE, FILE], "hold 10 rows"),
    ],
)
def test_reports_that_do_not_agree_stop_it(reports: list[ReadUnit | WrittenFile], why: str) -> None:
    """Rows, digests and times of the files are those of the scan, for each unit once."""
    with pytest.raises(ArchiveError, match=why):
        compared({RANGE: [UNIT]}, reports, State(), counts=True)


def test_the_count_of_the_store_has_to_be_met() -> None:
    """With what was archived of the generation before; only when everything was asked for."""
    read = replace(RANGE, rows_whole=6)
    with pytest.raises(ArchiveError, match="holds 6 messages by the store's count, and 5 were read; nothing was committed"):
        compared({read: [UNIT]}, [READ, FILE], State(), counts=True)
    compared({read: [UNIT]}, [READ, FILE], State(), counts=False)
    before = State(reached={(0, 1): Reached(0, 1, 0, 0, 1, 0)})
    compared({read: [UNIT]}, [READ, FILE], before, counts=True)


def test_reports_survive_their_text() -> None:
    """They cross the JVM as JSON; digests have all 64 bits."""
    big = replace(READ, digest=2**64 - 1, ts_sum=2**64 - 2)
    for report in (big, FILE, Failed("why")):
        assert decode(encode(report)) == report


# ---------------------------------------------------------------------------------------------- plans


def seen(*generations: GenerationSeen, cut: int = 100, gone: tuple[Lost, ...] = ()) -> Seen:
    return Seen("site:1", {0: cut}, {0: ()}, generations, gone)


def test_what_is_released_is_below_everything_that_is_not_archived() -> None:
    """In any generation of the shard, whatever its class; current ones that are empty or archived hold nothing."""
    done = State(reached={(0, 1): Reached(0, 1, 0, 40, 3, 0), (0, 4): Reached(0, 4, 50, 70, 2, 0)})
    old = GenerationSeen(0, 1, "default", 0, 40, 3, 9)
    quiet, busy = GenerationSeen(0, 4, "b", 50, None, 2, 9), GenerationSeen(0, 4, "b", 50, None, 3, 9)
    empty, unknown = GenerationSeen(0, 5, "c", 30, None, 0, 0), GenerationSeen(0, 5, "c", 30, None, None, None)
    left = GenerationSeen(0, 2, "default", 40, 60, 1, 9)
    assert acknowledged(seen(old, quiet, empty), done) == {0: 100}
    assert acknowledged(seen(old, busy, empty), done) == {0: 70}
    assert acknowledged(seen(old, quiet, unknown), done) == {0: 30}
    assert acknowledged(seen(old, left, busy), done) == {0: 40}


def test_units_fill_their_range_whatever_the_plan_says() -> None:
    """Holes and edges outside in the reader's plan change where it is cut, and nothing else."""
    plan = [{"shard": 0, "generation": 1, "from": start, "to": stop} for start, stop in ((-5, 3), (3, 4), (6, 30))]
    whole = replace(RANGE, start=2)
    assert units_of([whole], plan)[whole] == [Unit(0, 1, 2, 3), Unit(0, 1, 3, 4), Unit(0, 1, 4, 6), Unit(0, 1, 6, 10)]
    assert units_of([whole], [])[whole] == [Unit(0, 1, 2, 10)]


def test_small_units_are_packed_and_large_ones_are_not() -> None:
    """Up to the size of a task."""
    ranges = [replace(RANGE, generation=number, start=number, stop=number + 1, bytes=40) for number in range(5)]
    units = {each: [Unit(0, each.generation, each.start, each.stop)] for each in ranges}
    assert [len(task) for task in tasks_of(units, 100)] == [2, 2, 1]
    assert [len(task) for task in tasks_of(units, 10)] == [1] * 5


def test_oldest_first_and_at_least_one() -> None:
    """By where a generation ends; one that is larger than a round is a round of its own."""
    generations = [GenerationSeen(0, number, "default", 10 * number, 10 * number + 10, 1, 50) for number in (3, 1, 2)]
    assert [range_.generation for range_ in next_round(seen(*generations), State(), None, 100).ranges] == [1, 2]
    found = next_round(seen(*generations), State(), None, 1)
    assert [range_.generation for range_ in found.ranges] == [1] and found.more and found.waiting_bytes == 150
    found = next_round(seen(*generations), State(), None, 1000, {0: 30})
    assert [range_.generation for range_ in found.ranges] == [1, 2] and found.waiting_bytes == 150


# ---------------------------------------------------------------------------------------------- files


@pytest.mark.slow
def test_orphans_go_after_a_day_and_nothing_else_does(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """Files of crashed runs and rewritten ones; never what the manifest names, and nothing that is young."""
    broker, _ = shop
    archived(broker, tmp_path, replace(mine, round_bytes=1))
    compact(tmp_path)
    state = state_of(tmp_path)
    assert state.removed
    some = tmp_path / next(iter(state.files))
    orphan = some.with_name("orphan.parquet")
    orphan.write_bytes(b"x")
    (tmp_path / "_staging" / "dead").mkdir()
    now = os.stat(orphan).st_mtime
    assert clear(tmp_path, state, now_s=now + 80_000) == 0
    assert clear(tmp_path, state, now_s=now + 90_000) == 2 + len(state.removed)
    assert {path.relative_to(tmp_path).as_posix() for path in parquet_files(tmp_path)} == set(state.files)


@pytest.mark.slow
def test_a_compaction_makes_one_file_an_hour(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """With the same rows; a damaged file is never taken for what was archived."""
    broker, published = shop
    archived(broker, tmp_path, replace(mine, round_bytes=1))
    damaged = tmp_path / next(iter(state_of(tmp_path).files))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    with pytest.raises(ArchiveError):
        compact(tmp_path)
    damaged.write_bytes(whole)
    before = sorted(map(str, rows_in(tmp_path)))
    done = compact(tmp_path)
    assert (done.before, done.after, done.rows) == (6, 3, 120) and sorted(map(str, rows_in(tmp_path))) == before
    assert verify(tmp_path).problems == [] and compact(tmp_path).commits == 0
    assert keys_in(tmp_path) == keys_of(published[:120])


@pytest.mark.slow
def test_damage_of_each_kind_is_found(shop: tuple[Served, list[Said]], tmp_path: Path, mine: Options) -> None:
    """A flipped byte, a missing file, a shorter one, one of other rows: one sentence each, with its name."""
    broker, _ = shop
    archived(broker, tmp_path, mine)
    assert verify(tmp_path).problems == []
    first, second, *_ = [tmp_path / path for path in state_of(tmp_path).files]
    whole, other = first.read_bytes(), second.read_bytes()
    for at in range(0, len(whole), len(whole) // 12):
        first.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert [first.name in problem for problem in verify(tmp_path).problems] == [True], at
    for content in (whole[:-1], whole + b"\0", b"", other):
        first.write_bytes(content)
        assert [first.name in problem for problem in verify(tmp_path).problems] == [True]
    first.unlink()
    assert [problem for problem in verify(tmp_path).problems if "is missing" in problem]
    with pytest.raises(ArchiveError, match="is not an archive"):
        verify(tmp_path / "elsewhere")
