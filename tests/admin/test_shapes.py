"""Forms of answers: models that say what facts() makes, pages, and one look for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from actors.admin.flight import Shared
from actors.admin.sessions import SessionAnswer, shown
from actors.admin.shapes import LOOK_S, behind, cut, gathered, model_of
from actors.inquiry.asking import Page
from actors.inquiry.facts import facts
from actors.inquiry.homes import BadCursor
from actors.inquiry.lag import Lag, SubscriptionLag
from actors.inquiry.sessions import Session

LAG = Lag("c", True, 12, True, 12, 0, 1_000, None, False, (SubscriptionLag("a/#", 0, 12, True, 0, 1_000, None),))
SESSION = Session("c", "durable", 0, 7, None, 5, False, 1_000, None, None, None, 1, 0, 0, 0, False, None)


def test_a_model_has_the_fields_that_are_told_and_no_others() -> None:
    """Times under their names, and what is within in its own form."""
    told = facts(LAG)
    assert set(model_of(Lag).model_fields) == set(told) and told["oldest_at"] == "1970-01-01T00:00:01.000Z"
    model_of(Lag).model_validate_json(model_of(Lag).model_validate(told).model_dump_json())
    SessionAnswer.model_validate(shown((SESSION, LAG)))
    with pytest.raises(ValidationError, match="unread"):
        model_of(Lag).model_validate({**told, "unread": None})


def test_pages_of_a_list_have_everything_once() -> None:
    """By number, and by a key; a cursor that nobody has given is refused."""
    rows = [f"{number:02}" for number in range(23)]
    for limit in (1, 5, 23, 100):
        for by_key in (False, True):
            found: list[str] = []
            cursor = ""
            while True:
                page = behind(rows, str, cursor, limit) if by_key else cut(rows, cursor, limit)
                assert len(page.rows) <= limit
                found += page.rows
                cursor = page.cursor
                if not cursor:
                    break
            assert found == rows
    with pytest.raises(BadCursor):
        cut(rows, "x", 5)
    assert cut(rows, "0-" + "ff" * 40, 5) == Page(()) and behind(rows, str, "0-ff", 5) == Page(())


async def test_a_page_with_few_of_many_is_gathered_out_of_several() -> None:
    """Up to a bound, behind which it is short and has a cursor; who is missing in any is missing."""

    async def ask(cursor: str, count: int) -> Page[int]:
        start = int(cursor or 0)
        return Page(tuple(range(start, start + min(count, 3))), str(start + min(count, 3)), ("shard-1",) if start == 3 else ())

    now_s = 0.0

    async def told(limit: int, wanted: Callable[[int], bool] = lambda _: True, behind: Callable[[int], str] | None = None) -> Page[int]:
        return await gathered(ask, "", limit, wanted, behind, lambda: now_s)

    assert await told(7) == Page(tuple(range(7)), "7", ("shard-1",))
    assert await told(2, lambda row: row % 10 == 9) == Page((9, 19), "20")
    assert await told(3, lambda row: False) == Page((), "60", ("shard-1",))
    assert await told(1, lambda row: row % 3 < 2, str) == Page((0,), "0")

    async def slow(cursor: str, count: int) -> Page[int]:
        nonlocal now_s
        now_s += LOOK_S / 2
        return await ask(cursor, count)

    assert await gathered(slow, "", 3, lambda row: False, None, lambda: now_s) == Page((), "6", ("shard-1",))


async def test_many_who_ask_at_once_share_one_look() -> None:
    """It is told again while it is fresh, and while a newer one is made; a look that failed is nobody's but those who waited."""
    now_s, looks = 0.0, 0

    async def look() -> int:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise OSError("gone")
        return looks

    shared = Shared(look, 10.0, 60.0, lambda: now_s)
    assert await asyncio.gather(*[shared.get() for _ in range(5)]) == [1] * 5 and await shared.get() == 1
    now_s = 11.0
    assert await shared.get() == 1
    assert shared._looking is not None and await shared._looking == 2
    assert await shared.get() == 2
    now_s = 100.0
    with pytest.raises(OSError, match="gone"):
        await shared.get()
    assert await shared.get() == 4
