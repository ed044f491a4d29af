"""Lines of JSON in a file: what it has it knows, whatever was torn, however often it is opened."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.port import Accepted, Batch, Context, Message, Misconfigured, Outcome, Unavailable
from bridge.targets.jsonl import JsonlTarget, line_of
from config.bridge_targets import Jsonl
from config.values import Size


def context(tmp_path: Path, lanes: int = 1) -> Context:
    return Context("out", 0, lanes, "store", tmp_path, tmp_path / "bridges" / "out", lambda place: b"")


def target(tmp_path: Path, path: str = "out/x.jsonl", file_bytes_max: int = 1 << 20) -> JsonlTarget:
    return JsonlTarget(Jsonl(path=path, file_bytes_max=Size(file_bytes_max)), context(tmp_path))


def batch(*numbers: int, payload: bytes = b"p") -> Batch:
    return Batch("1.7", tuple([Message(n, 0, 1_000 + n, "a/b", payload, 1, False, 1_764_000_000_000, "c", key="a/b") for n in numbers]))


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_bytes().splitlines()]


async def test_a_message_is_a_line_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    """Payloads that are no text in base64."""
    one = target(tmp_path)
    assert await one.open() is None
    assert await one.deliver(batch(1)) == Outcome(1)
    assert await one.deliver(batch(2, payload=b"\xff")) == Outcome(1)
    await one.close()
    first, second = [json.loads(line) for line in (tmp_path / "out/x.jsonl").read_text().splitlines()]
    assert first == {
        "topic": "a/b", "payload": "p", "qos": 1, "retain": False, "publisher": "c", "published_at": "2025-11-24T16:00:00.000+00:00",
        "key": "a/b", "shard": 0, "position": 1001, "epoch": "1.7", "number": 1,
    }  # fmt: skip
    assert second["payload_base64"] == "/w=="


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(
    TEXTS, TEXTS, TEXTS, st.one_of(TEXTS.map(str.encode), st.binary(max_size=30)), st.lists(st.tuples(TEXTS, TEXTS), max_size=2),
    st.integers(0, 253_000_000_000_000),
)  # fmt: skip
def test_a_line_is_what_the_json_of_its_fields_would_be(
    topic: str, key: str, publisher: str, payload: bytes, users: list[tuple[str, str]], published_at_ms: int
) -> None:
    """To the byte, whatever the texts."""
    message = Message(7, 2, 1 << 60, topic, payload, 2, True, published_at_ms, publisher, tuple(users), key=key)
    fields: dict[str, object] = {"topic": topic}
    try:
        fields["payload"] = payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(payload).decode()
    published_at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=published_at_ms)
    fields |= {
        "qos": 2, "retain": True, "publisher": publisher, "published_at": published_at.isoformat(timespec="milliseconds"), "key": key,
        "shard": 2, "position": 1 << 60, "epoch": "1.7", "number": 7,
    }  # fmt: skip
    if users:
        fields["user_properties"] = users
    assert line_of("1.7", message) == json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


async def test_opened_again_it_says_what_it_has(tmp_path: Path) -> None:
    """A torn line is cut off."""
    path = tmp_path / "out/x.jsonl"
    one = target(tmp_path)
    await one.open()
    await one.deliver(batch(1, 2, 3))
    await one.close()
    await one.close()
    with open(path, "ab") as file:
        file.write(b'{"topic": "a/b", "numb')
    one = target(tmp_path)
    assert await one.open() == Accepted("1.7", 3)
    await one.deliver(batch(4))
    await one.close()
    assert numbers(path) == [1, 2, 3, 4]


async def test_a_line_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    """The end of the file is looked for backwards."""
    one = target(tmp_path)
    await one.open()
    await one.deliver(batch(1, 2, payload=b"x" * 200_000))
    await one.close()
    one = target(tmp_path)
    assert await one.open() == Accepted("1.7", 2)
    await one.close()


async def test_a_file_that_is_full_gets_a_number_and_what_it_has_still_counts(tmp_path: Path) -> None:
    """Also when the new one is empty."""
    one = target(tmp_path, file_bytes_max=4096)
    await one.open()
    for n in range(1, 9):
        await one.deliver(batch(n, payload=b"x" * 1_800))
    await one.close()
    path = tmp_path / "out/x.jsonl"
    assert numbers(path.with_suffix(".jsonl.1")) == [1, 2]
    path.write_bytes(b"")
    one = target(tmp_path, file_bytes_max=4096)
    accepted = await one.open()
    assert accepted is not None and accepted.number == numbers(path.with_suffix(".jsonl.3"))[-1]
    await one.close()


async def test_a_file_of_somebody_else_is_added_to(tmp_path: Path) -> None:
    """Nothing of it is taken for ours."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"hello": 1}\n')
    one = target(tmp_path, "x.jsonl")
    assert await one.open() is None
    await one.deliver(batch(1))
    await one.close()
    assert path.read_text().startswith('{"hello": 1}\n{"topic"')


async def test_one_file_is_written_by_one_bridge(tmp_path: Path) -> None:
    """A second one waits until it is free."""
    one, other = target(tmp_path), target(tmp_path)
    await one.open()
    with pytest.raises(Unavailable, match="being written by another"):
        await other.open()
    await other.close()
    await one.close()
    other = target(tmp_path)
    assert await other.open() is None
    await other.close()


async def test_a_directory_in_its_place_is_a_matter_for_people(tmp_path: Path) -> None:
    """Trying again soon is of no use."""
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(Misconfigured, match="cannot be written"):
        await target(tmp_path, "x.jsonl").open()


@pytest.mark.parametrize("held", ["open", "deliver"])
async def test_what_the_thread_still_does_when_it_is_closed_is_done_before(
    held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it any more, and it cannot be cancelled: a file that it opened then would be locked for ever, one that was closed
    under it might be another one by now."""
    reached, goes_on, locked = threading.Event(), threading.Event(), threading.Event()

    def slow(call: Callable[..., Any], *given: object) -> Any:
        reached.set()
        assert goes_on.wait(60)
        return call(*given)

    def lock(call: Callable[..., None], *given: object) -> None:
        call(*given)
        locked.set()

    under_way: asyncio.Task[Any]
    one = target(tmp_path)
    monkeypatch.setattr(fcntl, "flock", partial(lock, fcntl.flock))
    if held == "open":
        monkeypatch.setattr(os, "open", partial(slow, os.open))
        under_way = asyncio.create_task(one.open())
    else:
        await one.open()
        monkeypatch.setattr(os, "fdatasync", partial(slow, os.fdatasync))
        under_way = asyncio.create_task(one.deliver(batch(1)))
    await asyncio.to_thread(reached.wait, 60)
    under_way.cancel()
    await asyncio.gather(under_way, return_exceptions=True)
    closing = asyncio.create_task(one.close())
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.to_thread(locked.wait, 60)
    await closing
    monkeypatch.undo()
    again = target(tmp_path)
    assert await again.open() == (Accepted("1.7", 1) if held == "deliver" else None)
    assert await again.deliver(batch(2)) == Outcome(1)
    await again.close()
