"""`holdfast storage losses`, over the rows that sessions have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from shards.engine import HOME_FAMILY
from shards.rows import LOSS, NOT_COUNTED, LossRow, client_key, pack_row, u64
from tests.cli.test_storage import Kept

HOUR_MS = 3_600_000


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path / "d")
    yield made
    made.engine.close()


def lost(kept: Kept, client: bytes, number: int, loss: LossRow) -> None:
    kept.write([(HOME_FAMILY, client_key(LOSS, client, u64(number)), pack_row(loss))])


def run(kept: Kept, *words: str) -> str:
    result = CliRunner().invoke(app, ["storage", "losses", *words, "--data-dir", str(kept.path)])
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(kept: Kept, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(kept, *words, "--json"))
    return found


UNCOUNTED = LossRow(7, b"a/#", 0, 3, "default", 4, 9, NOT_COUNTED, HOUR_MS, 2 * HOUR_MS, 9 * HOUR_MS, "period")
COUNTED = LossRow(7, b"b", 0, 5, "short", 20, 29, 1, 3 * HOUR_MS, 4 * HOUR_MS, 8 * HOUR_MS, "damaged", 2)


def test_every_loss_is_a_line_that_says_who_what_when_and_why(kept: Kept) -> None:
    """By client and time; what nobody can count is said to be that; what a last row stands for as well."""
    lost(kept, b"late", 1, UNCOUNTED)
    lost(kept, b"late", 2, COUNTED)
    lost(kept, b"early", 1, UNCOUNTED)
    assert run(kept).splitlines() == [
        "1970-01-01T09:00:00.000Z early lost what there was of a/#, published from 1970-01-01T01:00:00.000Z to 1970-01-01T02:00:00.000Z "
        "(shard 0, generation 3 of class default, positions 5 to 9): its time was over",
        "1970-01-01T08:00:00.000Z late lost 1 message of b, published from 1970-01-01T03:00:00.000Z to 1970-01-01T04:00:00.000Z "
        "(shard 0, generation 5 of class short, positions 21 to 29): it cannot be read; 2 later losses included",
        "1970-01-01T09:00:00.000Z late lost what there was of a/#, published from 1970-01-01T01:00:00.000Z to 1970-01-01T02:00:00.000Z "
        "(shard 0, generation 3 of class default, positions 5 to 9): its time was over",
    ]


def test_of_one_client_and_in_json(kept: Kept) -> None:
    """A client whose id begins with the same letters is another one; what is not known is null."""
    lost(kept, b"c", 1, COUNTED._replace(from_wall_ms=0, to_wall_ms=0, generation=0, klass="", reason=""))
    lost(kept, b"c2", 1, UNCOUNTED)
    (row,) = rows(kept, "--client", "c")
    assert row == {
        "client": "c", "filter": "b", "shard": 0, "generation": 0, "class": "", "after": 20, "upto": 29, "messages": 1, "from": None,
        "to": None, "at": "1970-01-01T08:00:00.000Z", "reason": "", "more": 2,
    }  # fmt: skip
    assert "generations not remembered singly, positions 21 to 29): it is not remembered why" in run(kept, "--client", "c")
    assert [row["messages"] for row in rows(kept)] == [1, None]


def test_nobody_has_lost_anything(kept: Kept) -> None:
    """It is said, and a list that is empty is a list."""
    assert run(kept) == "nobody has lost anything\n" and rows(kept) == []
    lost(kept, b"other", 1, UNCOUNTED)
    assert run(kept, "--client", "c") == "c has lost nothing\n"
