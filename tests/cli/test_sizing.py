"""`holdfast sizing`: what it adds up is what is written."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from cli.main import app
from cli.sizing import sized

DAY_MS = 86_400_000


def test_disk_is_rate_times_retention_and_one_generation_more() -> None:
    """A message stays until its generation, which is as old as its youngest message, is over; and merging wants room."""
    found = sized(1000, 186, 7 * DAY_MS, DAY_MS, 0, 1, 3, 4)
    assert found.messages == 1000 * 86_400 * 8 and found.message_bytes == found.messages * 256
    assert found.disk_bytes == found.message_bytes + 1000 * 86_400 * 256 and found.streams_read == 12


def test_sessions_cost_rows_and_not_copies() -> None:
    """Twice the sessions twice the rows; places grow with the shards; none of it with the messages."""
    one, two = (sized(0, 0, DAY_MS, DAY_MS, count, 5, 1, 1) for count in (1000, 2000))
    wide = sized(5000, 100, DAY_MS, DAY_MS, 1000, 5, 1, 8)
    assert two.session_bytes == 2 * one.session_bytes and one.messages == 0
    assert (one.places, wide.places) == (5_000, 40_000) and one.session_bytes < wide.session_bytes < 8 * one.session_bytes
    assert 150 < sized(0, 0, DAY_MS, DAY_MS, 1, 0, 1, 1).session_bytes < 400


def test_the_command_says_it_in_lines_and_in_json() -> None:
    """And that for ever is too long."""
    words = ["sizing", "--rate", "2000", "--sessions", "10000", "--retention", "2d"]
    text = CliRunner().invoke(app, words).stdout
    assert "518,400,000 messages, read or not" in text and "10,000 places" in text
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["messages"] == 518_400_000
    refused = CliRunner().invoke(app, ["sizing", "--rate", "1", "--retention", "infinity"])
    assert refused.exit_code == 2 and "kept for ever" in refused.stderr
