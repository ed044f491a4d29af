"""actors.sparing: what peers can cause fills no log, and hides nothing."""

from __future__ import annotations

from structlog.testing import capture_logs

from actors.sparing import LINES_PER_S, Sparing


def test_so_many_lines_a_second_and_the_next_one_counts_the_rest() -> None:
    """Whatever peers do, the log has room for others' lines, and says what it has left out."""
    sparing = Sparing("client.refused")
    with capture_logs() as lines:
        for number in range(LINES_PER_S + 5):
            sparing.info(1_999, number=number)
        assert [line["number"] for line in lines] == list(range(LINES_PER_S))
        sparing.info(2_000, number=100)
        sparing.info(2_001, number=101)
    first, second = lines[LINES_PER_S:]
    assert first == {"event": "client.refused", "log_level": "info", "number": 100, "left_out": 5}
    assert second == {"event": "client.refused", "log_level": "info", "number": 101}
