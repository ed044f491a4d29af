"""The pictures of docs/admin-page.md: a real broker with a small factory of clients, looked at by a real browser.

`python -m tests.browser.pictures` makes all of them anew in docs/screenshots; it takes two minutes.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.actors.hand import Hand
from tests.broker.client import Client
from tests.broker.history import History
from tests.broker.running import Options, RunningBroker
from tests.broker.scraping import port_of
from tests.browser.driving import Tab, browser
from tests.gates.multitude import messages, sessions
from tests.gates.traffic import Publisher
from tests.needs import ROOT

PLACE = ROOT / "docs" / "screenshots"
WATCHED_S = 75.0
PER_SECOND = 60.0
CONFIG = """
[durable_storage.messages]
generation_length = "25s"
n_shards = 2

[[durable_storage.messages.classes]]
name = "alarms"
filter = "plant/+/+/alarm"
period = "30d"

[admin]
listen = "127.0.0.1:0"

[ray]
dashboard = false
"""
HALLS = ("hall-1", "hall-2", "paint-shop")
MEASURES = ("temperature", "pressure", "power", "alarm")
# Name, view, width, height, dark, and a script before it is taken.
PICTURES = (
    ("overview", "", 1280, 860, False, ""),
    ("overview-dark", "", 1280, 860, True, ""),
    ("overview-narrow", "", 400, 860, False, ""),
    ("clients", "clients", 1280, 620, False, ""),
    ("sessions", "sessions?by=lag", 1280, 620, False, ""),
    ("session", "client/historian", 1280, 760, False, ""),
    ("session-narrow", "client/historian", 400, 860, True, ""),
    ("topics", "topics?cost=plant/hall-1/%2B/temperature", 1280, 860, False, ""),
    ("generations", "generations", 1280, 700, False, ""),
)


def topics() -> list[str]:
    return [f"plant/{hall}/press-{number:02}/{measure}" for number in range(1, 25) for hall in HALLS for measure in MEASURES]


async def factory(port: int) -> list[Hand | Client]:
    """Who is there while pictures are taken; others have been there, and have something to read."""
    every = topics()
    meters = [f"meter-{number:02}" for number in range(1, 61)]
    await sessions(port, meters, [f"plant/{HALLS[number % 3]}/press-{number % 24 + 1:02}/#" for number in range(len(meters))])
    await sessions(port, ["historian", "billing", "shift-report"], ["plant/#", "plant/+/+/power", "plant/hall-1/#"])
    await messages(port, "commissioning", every * 6)
    await messages(port, "gateway-east", [topic for topic in every if "hall-1" in topic] * 4)
    stuck = await Hand.connect(port, "scada-2", 5, receive_max=5)
    await stuck.subscribe("plant/hall-2/+/alarm", 1, 3)
    labels = await Hand.connect(port, "labels", 5, expiry_s=0)
    for number in range(1, 13):
        await labels.published(f"plant/{HALLS[number % 3]}/press-{number:02}/label", "press", retain=True)
    history = History()
    readers = [Client(port, name, history, version=5) for name in ("dashboard", "scada-1")]
    for reader, topic_filter in zip(readers, ("plant/+/+/temperature", "plant/hall-2/#"), strict=True):
        await reader.start()
        await reader.subscribe(topic_filter, 1)
    publishers = [
        Publisher(Client(port, f"gateway-{HALLS[at]}", history, version=5), 1, PER_SECOND, every[at::3]) for at in range(len(HALLS))
    ]
    for publisher in publishers:
        await publisher.begin()
    return [stuck, labels, *readers, *[publisher.client for publisher in publishers]]


def take(tab: Tab, address: str) -> None:
    tab.window(1280, 860)
    tab.visit(f"{address}#/")
    tab.until(f"document.querySelectorAll('.plot svg').length === 6 && performance.now() > {WATCHED_S * 1000}", WATCHED_S + 60)
    for name, view, width, height, dark, script in PICTURES:
        tab.window(width, height, dark=dark)
        # The page goes on, and with it what it has seen.
        tab.ask(f"location.hash = '#/{view}'")
        tab.until("document.querySelector('main').innerText.length > 200 && !document.querySelector('main [aria-busy], .plot .waiting')")
        if script:
            tab.ask(script)
        tab.ask("new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
        path = PLACE / f"{name}.png"
        tab.picture(path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB", flush=True)
    assert tab.wrong == [], tab.wrong


async def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hf-") as directory:
        config = Path(directory) / "holdfast.toml"
        config.write_text(CONFIG, encoding="utf-8")
        with RunningBroker(Options(config=config)) as broker:
            there = await factory(broker.port)
            with browser() as tab:
                await asyncio.to_thread(take, tab, f"http://127.0.0.1:{await asyncio.to_thread(port_of, broker)}/")
            for one in there:
                if isinstance(one, Hand):
                    one.drop()
                else:
                    await one.stop()


if __name__ == "__main__":
    asyncio.run(main())
