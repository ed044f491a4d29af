"""What stands before everything that is answered: who may what from where, and what is too much."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from access.api_keys import FILE_NAME, ApiKey, written
from actors.admin.guard import BODY_BYTES_MAX, REQUESTS_MAX, Guard, Rules
from actors.admin.keys import CHECKS_MAX, LOOK_EVERY_S, Keys
from actors.alarms import read_alarms
from config.admin import Admin
from tests.access.test_passwords import pbkdf2
from tests.admin.asked import Answer, ask

READ, CHANGE = "/api/v5/clients", "/api/v5/clients/c"
HERE = Rules("127.0.0.1", loopback=True, read_without_key=True)
OUTSIDE = Rules("10.0.0.1", loopback=False, read_without_key=True)


class Behind:
    """What is guarded: says what it was asked, when it may."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.asked = 0
        self.waiting = asyncio.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        body = await Request(scope, receive).body()
        self.waiting.release()
        await self.go_on.wait()
        await JSONResponse({"path": scope["path"], "bytes": len(body)})(scope, receive, send)


class House:
    """A guard, its keys and their file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_s = 0.0
        self.behind = Behind()
        self.keys = Keys(directory, directory, "admin-0", lambda: self.now_s)
        self.guard = Guard(self.behind, self.keys, HERE)
        self.write(self.key("reader"), self.key("writer", scope="write"), self.key("old", expires_at_ms=1))

    @staticmethod
    def key(name: str, secret: bytes = b"s.e:c", **fields: object) -> ApiKey:
        return ApiKey.model_validate({"name": name, "id": name, "scope": "read", "hash": pbkdf2(secret), "created_at_ms": 0, **fields})

    def write(self, *keys: ApiKey) -> None:
        beside = self.directory / "beside"
        beside.write_bytes(written(list(keys)))
        os.replace(beside, self.directory / FILE_NAME)

    async def ask(self, target: str = READ, method: str = "GET", id: str = "", secret: str = "s.e:c", **headers: str) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await ask(self.guard, target, method, ({"authorization": f"Bearer {id}.{secret}"} if id else {}) | given)


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    made.keys.stop()


async def test_on_this_machine_reading_takes_no_key_and_changing_does(house: House) -> None:
    """Whoever shows one may do what its scope says."""
    assert (await house.ask()).status == 200
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        assert (await house.ask(CHANGE, method)).code == (401, "BAD_API_KEY_OR_SECRET")
        assert (await house.ask(CHANGE, method, "reader")).code == (403, "UNAUTHORIZED_ROLE")
        assert (await house.ask(CHANGE, method, "writer")).status == 200


async def test_a_wrong_key_is_refused_where_none_would_be_needed(house: House) -> None:
    """Who shows something wants to be known."""
    for id, secret in (("reader", "other"), ("nobody", "s.e:c"), ("old", "s.e:c")):
        answer = await house.ask(id=id, secret=secret)
        assert answer.code == (401, "BAD_API_KEY_OR_SECRET") and answer.headers["www-authenticate"].startswith("Bearer")
    for header in ("Basic ?", "Basic " + b64encode(b"\xff:x").decode(), "Digest x", "Bearer", "Bearer " + "x" * 2000):
        assert (await house.ask(authorization=header)).code == (401, "BAD_API_KEY_OR_SECRET"), header
    assert house.behind.asked == 0
    assert (await house.ask(authorization="Basic " + b64encode(b"reader:s.e:c").decode())).status == 200
    assert "reader has expired" not in (await house.ask(id="old")).json["message"]


async def test_elsewhere_everything_takes_a_key(house: House) -> None:
    """Of /api; figures and health do not."""
    house.guard.rules = OUTSIDE
    assert (await house.ask()).status == 401 and (await house.ask(id="reader")).status == 200
    assert (await house.ask("/metrics", host="metrics.example")).status == 200
    house.guard.rules = Rules("127.0.0.1", loopback=True, read_without_key=False)
    answer = await house.ask()
    assert answer.status == 401 and "admin.read_without_key" in answer.json["message"]
    house.guard.rules = HERE
    assert (await house.ask(x_forwarded_for="10.0.0.9")).status == 401


async def test_pages_of_others_get_nothing(house: House) -> None:
    """Neither by another site, nor by a name that was turned to this machine; with a key any name is right."""
    assert (await house.ask(host="evil.example:18083")).code == (421, "MISDIRECTED")
    assert (await house.ask("/metrics", host="evil.example")).code == (421, "MISDIRECTED")
    assert (await house.ask(host="evil.example", id="reader")).status == 200
    for host in ("localhost", "LOCALHOST:1", "[::1]:18083", "127.0.0.1", ""):
        assert (await house.ask(host=host)).status == 200, host
    for site in ("cross-site", "same-site"):
        assert (await house.ask(sec_fetch_site=site)).code == (403, "FORBIDDEN")
        assert (await house.ask(CHANGE, "DELETE", "writer", sec_fetch_site=site)).code == (403, "FORBIDDEN")
    for origin in ("http://evil.example", "null", "http://localhost:3000"):
        assert (await house.ask(origin=origin)).code == (403, "FORBIDDEN")
    answer = await house.ask(origin="http://127.0.0.1:18083", sec_fetch_site="same-origin")
    assert answer.status == 200 and "access-control-allow-origin" not in answer.headers and answer.headers["cache-control"] == "no-store"


async def test_what_is_too_much_has_its_own_answer(house: House) -> None:
    """A body, however it comes, and requests at a time."""
    key = {"authorization": "Bearer writer.s.e:c"}
    said = {**key, "content-length": str(BODY_BYTES_MAX + 1)}
    assert (await ask(house.guard, CHANGE, "PUT", said)).code == (413, "PAYLOAD_TOO_LARGE")
    parts = [b"x" * 1000] * (BODY_BYTES_MAX // 1000 + 1)
    assert (await ask(house.guard, CHANGE, "PUT", key, parts)).code == (413, "PAYLOAD_TOO_LARGE")
    assert (await ask(house.guard, CHANGE, "PUT", key, parts[:-1])).json["bytes"] == 1000 * len(parts[:-1])
    house.behind.go_on.clear()
    waiting = [asyncio.create_task(house.ask()) for _ in range(REQUESTS_MAX)]
    for _ in range(REQUESTS_MAX + 1):
        await house.behind.waiting.acquire()
    answer = await house.ask()
    assert answer.code == (429, "TOO_MANY_REQUESTS") and answer.headers["retry-after"] == "2"
    house.behind.go_on.set()
    assert {each.status for each in await asyncio.gather(*waiting)} == {200} and (await house.ask()).status == 200


async def test_a_slash_of_a_client_id_divides_nothing(house: House) -> None:
    """It is kept apart from those of the path; what is no text is refused."""
    assert (await house.ask("/api/v5/clients/a%2Fb/kick")).json["path"] == "/api/v5/clients/a\0b/kick"
    assert (await house.ask("/api/v5/clients/%00")).status == 400 and (await house.ask("/api/v5/clients/%ff")).status == 400


async def test_a_change_of_keys_counts_within_a_second(house: House) -> None:
    """One that was taken away is not taken any more, and a new secret of the same name is another key."""
    assert (await house.ask(id="reader")).status == 200
    house.write(house.key("writer", b"new", scope="write"))
    house.now_s += LOOK_EVERY_S + 0.1
    assert (await house.ask(id="reader")).status == 401 and (await house.ask(id="writer")).status == 401
    assert (await house.ask(id="writer", secret="new")).status == 200
    (house.directory / FILE_NAME).unlink()
    house.now_s += LOOK_EVERY_S + 0.1
    assert (await house.ask(id="writer", secret="new")).status == 401


async def test_a_file_that_cannot_be_read_lets_nobody_in_and_raises_an_alarm(house: House) -> None:
    """Who was taken out may be among those who were known; mended, it is as it was."""
    assert (await house.ask(id="reader")).status == 200
    (house.directory / FILE_NAME).write_bytes(b"{")
    house.now_s += LOOK_EVERY_S + 0.1
    answer = await house.ask(id="reader")
    assert answer.code == (503, "SERVICE_UNAVAILABLE") and FILE_NAME in answer.json["message"]
    (alarm,) = read_alarms(house.directory)
    assert (alarm.name, alarm.kind) == ("admin-0", "api-keys") and (await house.ask()).status == 200
    house.write(house.key("reader"))
    house.now_s += LOOK_EVERY_S + 0.1
    assert (await house.ask(id="reader")).status == 200 and read_alarms(house.directory) == []


async def test_only_so_many_keys_are_checked_at_a_time(house: House) -> None:
    """Who guesses does not fill the process with waiting."""
    answers = await asyncio.gather(*[house.ask(id="reader", secret=f"guess {number}") for number in range(CHECKS_MAX + 5)])
    statuses = [answer.status for answer in answers]
    assert statuses.count(401) == CHECKS_MAX and statuses.count(429) == 5


def test_loopback_is_what_nobody_else_reaches() -> None:
    """By address or by name."""
    for listen, loopback in {"127.0.0.1:1": True, "[::1]:1": True, "localhost:1": True, "0.0.0.0:1": False, "broker:1": False}.items():
        assert Rules.of(Admin.model_validate({"listen": listen})).loopback is loopback, listen
