"""How far durable sessions are behind, and when they lose something, as of the last survey (actors.admin.survey).

Bounded whatever the number of sessions: the TOP first ones by their rank, and how many sessions there are up to each of some bounds. Such
a distribution goes up and down, so it is a gauge with the label that histograms have; histogram_quantile takes it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.utils import floatToGoString

from actors.metrics.names import Metric
from actors.metrics.of_node import Value

if TYPE_CHECKING:
    from actors.inquiry.lag import Lag

TOP: Final = 10
"""Sessions that are metrics of their own."""
TOLD_MAX: Final = 100
"""Those that a survey remembers."""
LAG_BOUNDS: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""Messages."""
LOSS_BOUNDS: Final = (60, 600, 3_600, 6 * 3_600, 86_400, 3 * 86_400, 7 * 86_400, 30 * 86_400)
"""Seconds."""
_RANKED: Final = ("rank", "client")
_BEHIND = "1 is the session that is furthest behind; `client` is empty unless `admin.name_clients` is on."
LAG: Final = Metric(
    "holdfast_session_lag_messages", "gauge", _RANKED,
    f"Messages stored for a durable session and not acknowledged, of the {TOP} with the most. {_BEHIND}",
)  # fmt: skip
BYTES: Final = Metric(
    "holdfast_session_lag_bytes", "gauge", _RANKED,
    "Bytes of the messages that the same sessions have not read, as they are stored; what was given to them is not counted.",
)  # fmt: skip
SECONDS: Final = Metric(
    "holdfast_session_lag_seconds", "gauge", _RANKED, "Age of the oldest message that the same sessions have not read, as of the survey."
)
LOSS: Final = Metric(
    "holdfast_session_time_to_loss_seconds", "gauge", _RANKED,
    f"How long until a durable session loses something of that, at least, if it goes on as it is; of the {TOP} that lose first. "
    "Nothing where nobody does.",
)  # fmt: skip
OLDEST: Final = Metric(
    "holdfast_session_oldest_unread_seconds", "gauge", (), "Age of the oldest message that a session has not read; 0: there is none."
)
BY_LAG: Final = Metric("holdfast_sessions_by_lag", "gauge", ("le",), "Durable sessions that are behind by so many messages or fewer.")
BY_LOSS: Final = Metric(
    "holdfast_sessions_by_time_to_loss", "gauge", ("le",), "Durable sessions that lose something within so many seconds; +Inf: ever."
)
AGE: Final = Metric("holdfast_survey_age_seconds", "gauge", (), "How old the oldest of these figures are: since the last survey began.")
TOOK: Final = Metric("holdfast_survey_seconds", "gauge", (), "How long that survey took.")
AWAY: Final = Metric("holdfast_survey_processes_away", "gauge", (), "Processes that did not answer it; their sessions are not in it.")
_BRIDGE: Final = ("bridge",)
BRIDGE_LAG: Final = Metric("holdfast_bridge_lag_messages", "gauge", _BRIDGE, "Messages that are stored for a bridge and not carried.")
BRIDGE_BYTES: Final = Metric(
    "holdfast_bridge_lag_bytes", "gauge", _BRIDGE, "Bytes of those that are not in its memory, as they are stored."
)
BRIDGE_SECONDS: Final = Metric("holdfast_bridge_lag_seconds", "gauge", _BRIDGE, "Age of the oldest of those, as of the survey.")
BRIDGE_LOSS: Final = Metric(
    "holdfast_bridge_time_to_loss_seconds", "gauge", _BRIDGE,
    "How long until something is lost that a bridge has not carried, at least. Nothing where nothing is lost.",
)  # fmt: skip
METRICS: Final = (
    LAG, BYTES, SECONDS, LOSS, OLDEST, BY_LAG, BY_LOSS, BRIDGE_LAG, BRIDGE_BYTES, BRIDGE_SECONDS, BRIDGE_LOSS, AGE, TOOK, AWAY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a survey has found, of all durable sessions. Times are milliseconds since 1970.

    by_lag, by_loss: how many there are up to each of the bounds, and in all; of by_loss those that lose something. behind: sessions with
    anything unread or unfinished. furthest, soonest: TOLD_MAX at most, by lag and by time to loss, without their subscriptions.
    bridges: sessions of bridges, the same.  missing: processes that did not answer.
    """

    began_at_ms: int
    ended_at_ms: int
    sessions: int
    behind: int
    by_lag: tuple[int, ...]
    by_loss: tuple[int, ...]
    furthest: tuple[Lag, ...]
    soonest: tuple[Lag, ...]
    oldest_at_ms: int | None
    missing: tuple[str, ...]
    bridges: tuple[Lag, ...] = ()


def of_survey(surveyed: Surveyed | None, now_ms: int, name_clients: bool) -> Iterator[Value]:
    """Nothing as long as there was none."""
    if surveyed is None:
        return
    for rank, lag in enumerate(surveyed.furthest[:TOP], 1):
        labels = str(rank), lag.client if name_clients else ""
        yield LAG, labels, lag.messages
        yield BYTES, labels, lag.unread_bytes
        yield SECONDS, labels, (lag.behind_ms or 0) / 1000
    for rank, lag in enumerate(surveyed.soonest[:TOP], 1):
        yield LOSS, (str(rank), lag.client if name_clients else ""), (lag.loss_in_ms or 0) / 1000
    for lag in surveyed.bridges:
        name = (lag.client.partition("/")[2],)
        yield BRIDGE_LAG, name, lag.messages
        yield BRIDGE_BYTES, name, lag.unread_bytes
        yield BRIDGE_SECONDS, name, (lag.behind_ms or 0) / 1000
        if lag.loss_in_ms is not None:
            yield BRIDGE_LOSS, name, lag.loss_in_ms / 1000
    yield OLDEST, (), max(0, now_ms - surveyed.oldest_at_ms) / 1000 if surveyed.oldest_at_ms is not None else 0
    yield from _by(BY_LAG, LAG_BOUNDS, surveyed.by_lag)
    yield from _by(BY_LOSS, LOSS_BOUNDS, surveyed.by_loss)
    yield AGE, (), max(0, now_ms - surveyed.began_at_ms) / 1000
    yield TOOK, (), (surveyed.ended_at_ms - surveyed.began_at_ms) / 1000
    yield AWAY, (), len(surveyed.missing)


def _by(metric: Metric, bounds: Sequence[float], numbers: Sequence[int]) -> Iterator[Value]:
    for bound, number in zip((*bounds, float("inf")), numbers, strict=True):
        yield metric, (floatToGoString(float(bound)),), number
