"""The admin process at its socket: what never becomes a request, and a setting that changes while it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from actors.admin.server import HEAD_BYTES_MAX, AdminServer
from config.dump import dump_json
from config.load import load
from tests.actors.places import topology_in

LISTEN = "admin.listen=127.0.0.1:0"


async def asked(port: int, data: bytes) -> tuple[int, dict[str, str]]:
    """Status and answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = b""
    try:
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            answer = await reader.readexactly(size)
    finally:
        writer.transport.abort()
    return int(head.split()[1]), json.loads(answer)


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[AdminServer, int]]:
    topology = topology_in(tmp_path)
    (topology.run_dir / "topology.json").write_text(topology.to_json())
    topology.store_dir.mkdir()
    server = AdminServer(replace(topology, config_json=dump_json(load(sets=(LISTEN,), environ={}))), 0)
    (listener,) = (await server.start()).listeners
    yield server, listener.port
    await server.stop()


async def test_what_is_no_request_is_answered_in_the_form_of_all_answers(served: tuple[AdminServer, int]) -> None:
    """Garbage, and a head that is too long; a long one that fits is a request."""
    _, port = served
    for data in (b"hello\r\n\r\n", b"GET /" + b"x" * (HEAD_BYTES_MAX + 100)):
        status, answer = await asked(port, data)
        assert status == 400 and answer["code"] == "BAD_REQUEST" and answer["message"].startswith("this is not HTTP")
    status, answer = await asked(port, b"GET /" + b"x" * (HEAD_BYTES_MAX - 200) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status == 404 and answer["code"] == "NOT_FOUND" and len(answer["message"]) < 300


async def test_reading_without_a_key_ends_at_once_when_the_setting_says_so(served: tuple[AdminServer, int]) -> None:
    """And comes back."""
    server, port = served
    request = b"GET /api/v5/alarms HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert (await asked(port, request))[0] == 200
    server.reconfigure(load(sets=(LISTEN, "admin.read_without_key=false"), environ={}))
    status, answer = await asked(port, request)
    assert status == 401 and "admin.read_without_key" in answer["message"]
    server.reconfigure(load(sets=(LISTEN,), environ={}))
    assert (await asked(port, request))[0] == 200
