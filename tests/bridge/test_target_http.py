"""An HTTP server as target: what its answers mean, keys that stay, and how many requests there are at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from bridge.port import Batch, Misconfigured, Outcome, Unavailable
from bridge.targets.http import RETRY_AFTER_S_MAX, HttpTarget, retry_after_s
from tests.bridge.batches import STORE, batch, context, message
from tests.bridge.peers import WebBatchPeer, WebPeer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[WebPeer]:
    made = WebPeer(tmp_path)
    await made.start()
    yield made
    await made.end()


@pytest.fixture
async def batches(tmp_path: Path) -> AsyncIterator[WebBatchPeer]:
    made = WebBatchPeer(tmp_path)
    await made.start()
    yield made
    await made.end()


async def delivered(server: WebPeer, wanted: Batch, **settings: object) -> Outcome:
    target = HttpTarget(server.settings(**settings), context(server.directory, A=b"Bearer t"))
    try:
        await target.open()
        return await target.deliver(wanted)
    finally:
        await target.close()


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
async def test_some_answers_mean_not_now(status: int, server: WebPeer) -> None:
    """And Retry-After how long."""
    server.answers = [web.Response(status=status, headers={"Retry-After": "7"})]
    with pytest.raises(Unavailable, match=str(status)) as caught:
        await delivered(server, batch([1]))
    assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize("status", [301, 302, 401, 403, 404, 405, 407])
async def test_some_answers_are_about_the_address_or_who_we_are(status: int, server: WebPeer) -> None:
    """They say nothing of a message, which so is no dead letter; and nothing is sent to where a redirection points."""
    server.answers = [web.Response(status=status, headers={"Location": "/elsewhere"})]
    with pytest.raises(Misconfigured, match=str(status)):
        await delivered(server, batch([1]))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 406, 410, 413, 415, 422])
async def test_other_answers_refuse_the_message(status: int, server: WebPeer) -> None:
    """For good, with the status in the reason."""
    server.answers = [web.Response(status=status)]
    outcome = await delivered(server, batch([1, 2]))
    assert outcome.done == 2 and [each.index for each in outcome.refused] == [0] and str(status) in outcome.refused[0].reason


async def test_what_was_accepted_before_a_failure_need_not_come_again(server: WebPeer) -> None:
    """Nothing behind the failure is sent."""
    server.answers = [web.Response(), web.Response(), web.Response(status=503)]
    assert await delivered(server, batch(range(1, 6))) == Outcome(2)
    assert len(server.requests) == 3


async def test_a_request_says_what_the_message_is(server: WebPeer) -> None:
    """Its key, its topic, its publisher; and what the operator set."""
    one = message(7, "plant/ü b", b"\0\1", content_type="application/cbor")
    await delivered(server, Batch("made-1", (one,)), headers='{"X-Tenant": "9"}', authorization="env:A", method="PUT")
    headers, body = server.requests[0]
    assert body == b"\0\1" and headers["Idempotency-Key"] == f"{STORE}/2/1000007"
    assert headers["Holdfast-Topic"] == "plant/%C3%BC%20b" and headers["Holdfast-Publisher"] == "sensor-%C3%A4"
    assert (headers["Content-Type"], headers["X-Tenant"], headers["Authorization"]) == ("application/cbor", "9", "Bearer t")


async def test_a_content_type_that_is_no_header_is_left_out(server: WebPeer) -> None:
    """A publisher cannot put headers of his own into a request."""
    await delivered(server, Batch("made-1", (message(1, content_type="text/plain\r\nX-Evil: 1"),)))
    headers, _ = server.requests[0]
    assert "X-Evil" not in headers and headers["Content-Type"] == "application/octet-stream"


async def test_a_repeat_has_the_same_key(batches: WebBatchPeer) -> None:
    """Of a batch: its first and last message."""
    await delivered(batches, batch(range(1, 4)))
    await delivered(batches, batch(range(1, 4)))
    keys = [headers["Idempotency-Key"] for headers, _ in batches.requests]
    assert keys[0] == keys[1] == f"{STORE}/2/1000001..{STORE}/2/1000003"


async def test_a_batch_is_halved_until_it_is_known_which_message_is_refused(batches: WebBatchPeer) -> None:
    """The others are accepted, in order, and no more requests are made than halving takes."""
    wanted = [message(number, payload=b"not wanted" if number == 11 else b"") for number in range(1, 17)]
    outcome = await delivered(batches, Batch("made-1", tuple(wanted)))
    assert outcome.done == 16 and [each.index for each in outcome.refused] == [10]
    assert [got[0].rpartition("/")[2] for got in await batches.got()] == [str(1_000_000 + n) for n in range(1, 17) if n != 11]
    assert len(batches.requests) == 9


async def test_documents_hold_json_text_and_bytes(batches: WebBatchPeer) -> None:
    """A payload that is JSON is one; one that is no text is base64."""
    payloads = [b'{"t": 21.5}', b"warm", b"\xff\xfe", b"null", b"NaN"]
    batches.answers = [web.Response()]
    await delivered(batches, Batch("made-1", tuple([message(n, payload=payload) for n, payload in enumerate(payloads, 1)])))
    documents = json.loads(batches.requests[0][1])
    assert [each["payload"] for each in documents] == [{"t": 21.5}, "warm", None, None, "NaN"]
    assert [each.get("payload_base64") for each in documents] == [None, None, "//4=", None, None]
    assert documents[0]["published_at"] == "2026-09-21T14:13:20.001+00:00"


class _Slow(WebPeer):
    """Holds requests until a test lets them go."""

    async def start(self) -> None:
        self.now = self.most = 0
        self.go = asyncio.Event()
        await super().start()

    async def _take(self, request: web.Request) -> web.Response:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go.wait()
        self.now -= 1
        return await super()._take(request)


async def test_requests_at_the_same_time_are_bounded_and_keys_keep_their_order(tmp_path: Path) -> None:
    """With three connections three keys go at once, and each key one by one."""
    server = _Slow(tmp_path)
    await server.start()
    try:
        delivering = asyncio.create_task(delivered(server, batch(range(1, 31)), connections=2))
        while server.now < 2:  # noqa: ASYNC110  # the server tells nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        server.go.set()
        assert await delivering == Outcome(30)
        assert server.most == 2
        for key in range(3):
            numbers = [int(got[0].rpartition("/")[2]) % 1_000_000 for got in await server.got()]
            assert [n for n in numbers if n % 3 == key] == [n for n in range(1, 31) if n % 3 == key]
    finally:
        await server.end()


async def test_a_server_that_does_not_answer_in_time_is_away(tmp_path: Path) -> None:
    """By the timeout of the target."""
    server = _Slow(tmp_path)
    await server.start()
    try:
        with pytest.raises(Unavailable, match="within"):
            await delivered(server, batch([1]), timeout="200ms")
    finally:
        server.go.set()
        await server.end()


def test_retry_after_is_seconds_or_a_date_within_bounds() -> None:
    """What cannot be read says nothing."""
    assert retry_after_s("120", 0.0) == 120.0
    assert retry_after_s("999999999999", 0.0) == RETRY_AFTER_S_MAX
    assert retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 30.0) == 30.0
    assert retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 90.0) == 0.0
    assert [retry_after_s(text, 0.0) for text in ("", "soon", "-5", "٣")] == [None] * 4
