"""The bridges of a real broker on the admin page, in a real browser: one outwards, one inwards, and one whose other end is not there."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import aiomqtt
import pytest

from tests.actors.bridge.test_inward import mosquitto
from tests.broker.running import Options, RunningBroker, free_port
from tests.broker.scraping import port_of
from tests.browser.driving import Tab, browser
from tests.browser.looking import WIDE, rows

pytestmark = [
    pytest.mark.needs("chromium", "mosquitto"),
    pytest.mark.parametrize("broker", [Options({"ray.dashboard": "false", "admin.listen": "127.0.0.1:0"})], indirect=True, ids=["plain"]),
]
HEADS = (
    "Bridge", "State", "Direction", "Type", "Filter", "Delivered", "Behind", "Bytes", "Oldest", "Loses in", "In flight", "Error",
)  # fmt: skip


def _shown(tab: Tab, name: str) -> dict[str, str]:
    tab.until(f"{rows('Bridges')}.some(([bridge]) => bridge === '{name}')")
    (cells,) = [cells for cells in tab.ask(rows("Bridges")) if cells[0] == name]
    return dict(zip(HEADS, cells, strict=True))


async def test_each_bridge_is_shown_as_it_is(broker: RunningBroker, tmp_path: Path) -> None:
    """What one inwards is behind by nobody here knows; of one that fails the page says why."""

    def add(name: str, *settings: str) -> None:
        subprocess.run(
            [str(broker.executable), "bridge", "add", name, *settings, "--data-dir", str(broker.data_dir)],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip

    async with mosquitto(tmp_path) as there:
        url = f"mqtt.url=mqtt://127.0.0.1:{there.port}"
        await asyncio.to_thread(add, "out", "filter=a/#", "type=jsonl", "jsonl.path=out.jsonl")
        await asyncio.to_thread(add, "in", "direction=in", "filter=a/+", "type=mqtt", url)
        await asyncio.to_thread(add, "lost", "direction=in", "filter=b/#", "type=mqtt", f"mqtt.url=mqtt://127.0.0.1:{free_port()}")
        async with aiomqtt.Client("127.0.0.1", there.port) as writer:
            for number in range(12):
                await writer.publish("a/1", f"{number}", qos=1)
            await asyncio.to_thread(_look, f"http://127.0.0.1:{port_of(broker)}/")


def _look(address: str) -> None:
    with browser() as tab:
        tab.window(1280, 900, dark=False)
        tab.visit(f"{address}#/bridges")
        for name in ("in", "out"):
            tab.until(f"{rows('Bridges')}.some((cells) => cells[0] === '{name}' && cells[1] === 'running' && cells[5] === '12')")
        tab.until(f"{rows('Bridges')}.some((cells) => cells[0] === 'lost' && cells[1] === 'failing' && cells[11])")
        inward, outward, lost = (_shown(tab, name) for name in ("in", "out", "lost"))
        assert (inward["Direction"], inward["Type"], inward["Filter"], inward["Behind"]) == ("in", "mqtt", "a/+", "not known")
        assert (outward["Direction"], outward["Type"], outward["Behind"], outward["Error"]) == ("out", "jsonl", "0", "")
        assert "cannot be reached" in lost["Error"] and inward["Error"] == ""
        for width in (1280, 390):
            tab.window(width, 900, dark=False)
            assert tab.ask(WIDE) == []
        assert tab.wrong == []
