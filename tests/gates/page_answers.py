"""The page's half of gate 3 of issue 6: with 50,000 sessions and 10,000 topics every answer to the admin page comes in 200 ms.

A real browser opens each view several times. Judged is each answer, from its request until its last byte, in the median of the visits, also
what a view that is drawn already asks for besides, and the files of the page; told are the first answers of all, for which files of the
store may have to be opened, and how long it takes until a view is drawn.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.broker.running import RunningBroker
from tests.broker.scraping import port_of, scrape
from tests.browser.driving import Tab, browser
from tests.gates.gate import GateFailed, Scale, running, settings
from tests.gates.multitude import messages, sessions
from tests.needs import ROOT

SESSIONS = 50_000
HALLS, LINES, MACHINES, MEASURES = 25, 10, 10, ("temp", "noise", "power", "state")
WITHIN_MS = 200.0
VISITS = 5
SURVEY_S = 600.0
PICTURES = ROOT / "docs" / "screenshots"
PICTURES_LEAST = 6
PICTURE_BYTES_MAX = 150_000
VIEWS = (
    "", "clients", "sessions", "sessions?by=lag", "client/meter-00777", "topics", "generations", "retained", "shards", "alarms",
    "search?q=meter-00777",
)  # fmt: skip
# When nothing of a view is on its way any more, for the first time; and how many answers are still to come.
DRAWN = """(() => {
    const ask = window.fetch.bind(window);
    window.asked = 0;
    window.fetch = (...what) => { window.asked++; return ask(...what).finally(() => { window.asked--; }); };
    const look = new MutationObserver(() => {
        const main = document.querySelector("main");
        if (!main?.firstElementChild?.firstElementChild || main.querySelector("[aria-busy]")) return;
        window.drawn = performance.now();
        look.disconnect();
    });
    look.observe(document, { subtree: true, childList: true, attributes: true });
})()"""
# The last bytes of an answer come after its head.
SETTLED = """window.asked === 0 && performance.getEntriesByType("resource").every((one) => one.responseEnd) && performance.now()"""
TIMES = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map((one) => [one.name, one.responseEnd - one.requestStart])"""


def topics() -> list[str]:
    """10,000 of four levels, none of which has so many words that it would be learned to vary."""
    return [
        f"hall-{hall}/line-{line}/{machine}/{measure}"
        for hall in range(HALLS) for line in range(LINES) for machine in range(MACHINES) for measure in MEASURES
    ]  # fmt: skip


async def filled(broker: RunningBroker, scale: Scale) -> tuple[int, int]:
    """(sessions, topics): each session waits for what comes from one line of machines."""
    count, wanted = scale.of(SESSIONS), topics()[:: 10 if scale.quick else 1]
    clients = [f"meter-{number:05}" for number in range(count)]
    await sessions(broker.port, clients, [f"hall-{number % HALLS}/line-{number // HALLS % LINES}/#" for number in range(count)])
    await messages(broker.port, "publisher", wanted)
    return count, len(wanted)


async def page_answers(scale: Scale) -> str:
    pictures = sorted(PICTURES.glob("*.png"))
    large = [path.name for path in pictures if path.stat().st_size > PICTURE_BYTES_MAX]
    if len(pictures) < PICTURES_LEAST or large:
        raise GateFailed(f"{len(pictures)} pictures in docs/screenshots, too large: {large}")
    admin = {"admin.enable": "true", "admin.listen": "127.0.0.1:0", "admin.survey_interval": "5s"}
    async with running(settings(1, **admin)) as watched:
        began = time.monotonic()
        count, n_topics = await filled(watched.broker, scale)
        filling_s = time.monotonic() - began
        port = await asyncio.to_thread(port_of, watched.broker)
        await asyncio.to_thread(_surveyed, port, count)
        address = f"http://127.0.0.1:{port}/"
        with browser() as tab:
            answers, firsts, drawn = await asyncio.to_thread(_visited, tab, address)
            if tab.wrong or tab.foreign():
                raise GateFailed(f"the page did wrong: {(tab.wrong + tab.foreign())[:3]}")
    slowest = sorted(answers.items(), key=lambda one: -one[1])
    told = (
        f"{count} sessions and {n_topics} topics, made in {filling_s:.0f} s; {len(answers)} answers of {len(VIEWS)} views, slowest "
        f"{_said(dict(slowest[:3]))}; longer at first: {_said(_late(firsts)) or 'none'}; views drawn after {_said(drawn)}"
    )
    if late := _late(answers):
        raise GateFailed(f"over {WITHIN_MS:.0f} ms: {_said(late)} ({told})")
    return told


def _surveyed(port: int, sessions: int) -> None:
    """The broker has gone over all of them, as it does now and then; what is furthest behind is told from there."""
    deadline = time.monotonic() + SURVEY_S
    while True:
        found = scrape(port)
        if found.values.get(("holdfast_sessions_by_lag", "+Inf")) == sessions and found.sum("holdfast_session_lag_messages"):
            return
        if time.monotonic() > deadline:
            raise GateFailed(f"no survey of all {sessions} sessions within {SURVEY_S:.0f} s")
        time.sleep(2)


def _visited(tab: Tab, address: str) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """In ms: medians of each answer that a view asks for, the first of each, and medians until the view is drawn."""
    answers: dict[str, list[float]] = {}
    drawn: dict[str, list[float]] = {}
    tab.window(1280, 900)
    tab.before_each(DRAWN)
    for view in VIEWS:
        for _ in range(VISITS):
            tab.visit(f"{address}#/{view}")
            drawn.setdefault(view or "overview", []).append(tab.until("window.drawn"))
            tab.until(SETTLED)
            for name, ms in tab.ask(TIMES):
                answers.setdefault(_shortened(name), []).append(ms)
    return _medians(answers), {name: each[0] for name, each in answers.items()}, _medians(drawn)


def _late(found: Mapping[str, float]) -> dict[str, float]:
    return {name: ms for name, ms in found.items() if ms >= WITHIN_MS}


def _shortened(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _medians(found: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in found.items()}


def _said(found: Mapping[str, Any]) -> str:
    return ", ".join([f"{name} {ms:.0f} ms" for name, ms in found.items()])
