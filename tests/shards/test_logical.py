"""The storage as a library (shards/logical.py), over both built-in backends, and what docs/storage-library.md shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mqtt.reason import ProtocolError
from shards.backends import BackendUnknown
from shards.classes import ClassMap, RetentionClass
from shards.engine import StoreFull, StoreInUse
from shards.engine_memory import MemoryEngine
from shards.layouts.pagestream import PageStream
from shards.layouts.registry import LAYOUTS
from shards.logical import GenerationDropped, Iteration, Message, MessageLog, open_log
from shards.lts import StructureMismatch
from shards.options import StoreOptions

PAGE = Path(__file__).parents[2] / "docs" / "storage-library.md"


@pytest.fixture(params=["rocksdb", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MessageLog]:
    return lambda: open_log(request.param, str(tmp_path / "log"), StoreOptions(thresholds=(100, 2)))


def texts(messages: list[Message]) -> list[bytes]:
    return [message.payload for message in messages]


def numbered(topic: bytes, *numbers: int) -> list[Message]:
    return [Message(topic, b"%d" % number, b"writer") for number in numbers]


def test_what_was_appended_comes_by_streams_and_iterators(opened: Callable[[], MessageLog]) -> None:
    """Each match once; a level that varies shares a stream; an iterator goes on where it was, also through its bytes."""
    with opened() as log:
        positions = log.append([message for n in range(5) for message in numbered(b"dev/%d/temp" % n, n, n + 100)])
        assert positions == sorted(set(positions))
        streams = log.get_streams(b"dev/+/temp")
        assert len(streams) == 3, "two literal ones, and one for all others"
        found = [message for stream in streams for message in log.next(log.make_iterator(stream, b"dev/+/temp"), 100).messages]
        assert sorted(message.position for message in found) == positions and found[0].publisher == b"writer"
        (only,) = log.get_streams(b"dev/4/temp")
        batch = log.next(log.make_iterator(only, b"dev/4/temp"), 1)
        assert texts(batch.messages) == [b"4"] and not batch.ended
        again = Iteration.decode(batch.iteration.encode())
        assert texts(log.next(again, 10).messages) == [b"104"]


def test_an_iterator_gives_the_same_first_after_anything(opened: Callable[[], MessageLog]) -> None:
    """Later appends and a roll add behind; at the end of a sealed generation the iterator has ended."""
    with opened() as log:
        log.append(numbered(b"a", 1, 2))
        (stream,) = log.get_streams(b"a")
        iterator = log.make_iterator(stream, b"a")
        assert texts(log.next(iterator, 9).messages) == [b"1", b"2"]
        log.append(numbered(b"a", 3))
        log.roll()
        log.append(numbered(b"a", 4))
        batch = log.next(iterator, 9)
        assert texts(batch.messages) == [b"1", b"2", b"3"] and batch.ended
        assert [stream.generation for stream in log.get_streams(b"a")] == [1, 2]


def test_a_subscription_follows_streams_and_generations_that_come_later(opened: Callable[[], MessageLog]) -> None:
    """From any place, in order for each topic, each message once; its place can be kept."""
    with opened() as log:
        log.append(numbered(b"x/1", 1))
        following = log.subscribe(b"x/#")
        assert texts(following.poll(10)) == [b"1"] and following.poll(10) == []
        log.append(numbered(b"x/2", 2) + numbered(b"y", 3) + numbered(b"x/1", 4))
        log.roll()
        log.append(numbered(b"x/3", 5))
        kept = log.subscribe(b"x/#", following.place)
        assert sorted(texts(list(following))) == [b"2", b"4", b"5"]
        first = kept.poll(1)
        rest = log.subscribe(b"x/#", kept.place)
        assert sorted(texts(first + list(rest))) == [b"2", b"4", b"5"]


def test_what_was_dropped_is_an_error_and_never_silence(opened: Callable[[], MessageLog]) -> None:
    """For iterators and for subscriptions that had not read it; the current generation cannot be dropped."""
    with opened() as log:
        log.append(numbered(b"a", 1))
        iterator = log.make_iterator(log.get_streams(b"a")[0], b"a")
        behind, beyond = log.subscribe(b"a"), log.subscribe(b"a")
        assert len(beyond.poll(5)) == 1
        log.roll()
        assert beyond.poll(5) == []
        log.drop(1)
        for read in (lambda: log.next(iterator, 1), lambda: behind.poll(1)):
            with pytest.raises(GenerationDropped):
                read()
        with pytest.raises(ValueError, match="current one"):
            log.drop(2)
        log.append(numbered(b"a", 2))
        assert texts(list(beyond)) == texts(list(log.subscribe(b"a"))) == [b"2"]


def test_classes_are_kept_apart_and_a_change_of_them_keeps_the_order(tmp_path: Path) -> None:
    """Opened with another map, all classes begin anew; a class can be dropped alone, and who begins then does not miss it."""
    path = str(tmp_path / "log")
    with open_log("rocksdb", path) as log:
        log.append(numbered(b"gold/a", 1) + numbered(b"x", 2))
    gold = StoreOptions(classes=ClassMap((RetentionClass("gold", b"gold/#", 1),)))
    with open_log("rocksdb", path, gold) as log:
        everything, only_x = log.subscribe(b"#"), log.subscribe(b"x")
        log.append(numbered(b"gold/a", 3) + numbered(b"x", 4))
        assert [(info.id, info.klass) for info in log.generations()] == [(1, "default"), (2, "default"), (3, "gold")]
        assert texts(list(log.subscribe(b"gold/#"))) == [b"1", b"3"]
        log.roll()
        log.drop(3)
        with pytest.raises(GenerationDropped, match="generation 3 "):
            list(everything)
        with pytest.raises(GenerationDropped, match="generation 3 "):
            list(everything)
        assert texts(list(only_x)) == [b"2", b"4"], "no topic of gold was asked for"
        log.append(numbered(b"gold/a", 5))
        assert sorted(texts(list(log.subscribe(b"#")))) == [b"1", b"2", b"4", b"5"]


def test_it_is_there_after_a_restart_and_open_once(tmp_path: Path) -> None:
    """Positions go on; a second opener of the directory is refused."""
    path = str(tmp_path / "log")
    with open_log("rocksdb", path) as log:
        (first,) = log.append(numbered(b"a", 1))
        with pytest.raises(StoreInUse):
            open_log("rocksdb", path)
    with open_log("builtin_local", path) as log:
        (second,) = log.append(numbered(b"a", 2))
        assert second > first and texts(list(log.subscribe(b"#"))) == [b"1", b"2"]


def test_what_makes_no_sense_is_refused_whole(opened: Callable[[], MessageLog]) -> None:
    """A bad topic stores nothing of its batch; a stream of another filter, bytes that are no iterator, an unknown backend."""
    with opened() as log:
        with pytest.raises(ProtocolError, match="wildcard"):
            log.append([*numbered(b"a", 1), *numbered(b"a/+", 2)])
        log.append(numbered(b"b", 3))
        assert texts(list(log.subscribe(b"#"))) == [b"3"]
        with pytest.raises(StructureMismatch):
            log.make_iterator(log.get_streams(b"b")[0], b"c")
    with pytest.raises(ValueError, match="no iterator"):
        Iteration.decode(b"\xc1")
    with pytest.raises(BackendUnknown, match="builtin_local, memory, rocksdb"):
        open_log("granite", "x")


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/storage-library.md shows is what happens."""
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_full_disk_refused_is_nowhere(layout: str) -> None:
    """Refused as a whole, it is in no index either; what comes later is found by every filter, and after a restart too."""
    engine = MemoryEngine()
    log = MessageLog(engine, StoreOptions(layout, (0,)))
    log.append(numbered(b"d/7", 1, 2))
    engine.fail_next_write()
    with pytest.raises(StoreFull):
        log.append(numbered(b"d/7", 3, 4))
    log.append([*numbered(b"d/8", 5), *numbered(b"d/7", 6)])
    for again in (log, MessageLog(engine, StoreOptions(layout, (0,)))):
        assert texts(list(again.subscribe(b"d/7"))) == [b"1", b"2", b"6"]
        assert texts(list(again.subscribe(b"d/+"))) == [b"1", b"2", b"5", b"6"]


@pytest.mark.slow
def test_what_is_appended_does_not_stay_in_memory() -> None:
    """Nobody here is idle, so appending itself writes what is to be written of an index, in step with it, however many levels vary."""
    log = MessageLog(MemoryEngine(), StoreOptions("pagestream", (0,)))
    for first in range(0, 180_000, 5000):
        log.append([Message(b"d/%d/b/c/d" % (number % 100), b"x") for number in range(first, first + 5000)])
    (layout,) = log._store._generations._open.values()
    assert isinstance(layout, PageStream)
    assert sum(index.entries.count for index in layout._index._streams.values()) < 80_000
    assert len(texts(list(log.subscribe(b"d/7/#")))) == 1800
