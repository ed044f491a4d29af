"""The admin page in a real browser, of one real broker with real clients: each view shows what is so, to everybody, and runs nothing of
what clients call themselves."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from actors.admin.page import HEADERS
from tests.actors.hand import Hand
from tests.broker.running import Options, RunningBroker
from tests.broker.scraping import port_of
from tests.browser.driving import Tab, browser
from tests.browser.looking import DARK, PALE, TIMERS, WIDE, rows, shows

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.parametrize(
        "broker",
        [Options({"ray.dashboard": "false", "admin.listen": "127.0.0.1:0", "durable_storage.messages.n_shards": "2"})],
        indirect=True,
        ids=["two shards"],
    ),
]
AWAY, BEHIND = 55, 20
EVIL = '<img src=x onerror="document.title=1;alert(1)">'
SLASHED = "a/b?c#d%2Fé ü"
MOVED = "turned\u202eback"
VIEWS = {
    "": "Processes", "clients": "meter-01", "sessions": "meter-01", "sessions?by=lag": "counted", "topics": "plant",
    "topics?cost=plant/%2B/temp": "Streams to read", "generations": "Time line", "retained": "retained/", "shards": "messages/0",
    "alarms": "The installation", "client/meter-01": "plant/+/temp", "search?q=meter": "meter-01",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    tab: Tab
    broker: RunningBroker
    address: str

    def go(self, view: str, width: int = 1280, *, dark: bool = False) -> None:
        self.tab.window(width, 900, dark=dark)
        self.tab.visit(f"{self.address}#/{view}")

    def rows(self, label: str, least: int = 1) -> dict[str, list[str]]:
        """By their first cell, when there are so many."""
        self.tab.until(f"{rows(label)}.length >= {least}")
        return {row[0]: row for row in self.tab.ask(rows(label))}

    def command(self, *words: str) -> Any:
        command = [str(self.broker.executable), *words, "--json", "--data-dir", str(self.broker.data_dir)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


async def _clients(port: int) -> list[Hand]:
    """Who is away with something to read, who is there and does not acknowledge, who calls himself what no page should read as HTML."""
    for number in range(AWAY):
        meter = await Hand.connect(port, f"meter-{number:02}", 5, expiry_s=100_000)
        await meter.subscribe("plant/+/temp" if number < BEHIND else "quiet/#", 1)
        await meter.close()
    for name in (EVIL, MOVED, SLASHED):
        gone = await Hand.connect(port, name, 5, expiry_s=100_000)
        await gone.subscribe(f"plant/{EVIL}/#", 1)
        await gone.close()
    stuck = await Hand.connect(port, "stuck", 5, receive_max=2)
    await stuck.subscribe("plant/#", 1, 7)
    publisher = await Hand.connect(port, "publisher", 5, expiry_s=0)
    for number in range(30):
        await publisher.published(f"plant/{number}/temp", "x")
    await publisher.published(f"plant/{EVIL}/temp", "x")
    await publisher.published(f"retained/{EVIL}", "kept", retain=True)
    await stuck.messages(2)
    return [stuck, publisher]


@pytest.fixture(scope="module")
def stage(broker: RunningBroker) -> Iterator[Stage]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    hands = asyncio.run_coroutine_threadsafe(_clients(broker.port), loop).result(300)
    with browser() as tab:
        yield Stage(tab, broker, f"http://127.0.0.1:{port_of(broker)}/")
        # Whatever is still to be heard is heard before an answer.
        tab.ask("0")
        assert tab.wrong == []

    async def leave() -> None:
        for hand in hands:
            hand.drop()

    asyncio.run_coroutine_threadsafe(leave(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_the_overview_shows_rates_figures_and_processes(stage: Stage) -> None:
    """All of it is what the broker says of itself."""
    stage.go("")
    tab = stage.tab
    tab.until("[...document.querySelectorAll('.plot svg')].length === 6")
    tiles = tab.ask("Object.fromEntries([...document.querySelectorAll('.tile')].map((one) => one.innerText.split('\\n')))")
    assert tiles["Connections"] == "2" and tiles["Sessions away"] == str(AWAY + 3) and tiles["Retained messages"] == "1"
    tab.until("document.querySelector('.strip strong')?.innerText === 'Ready'")
    tab.until(f"{rows('Processes')}.some(([name, pid]) => name === 'launcher' && pid)")
    processes = stage.rows("Processes", 6)
    status = stage.broker.status()
    assert {each.name: str(each.pid) for each in status.processes if each.role != "ray"} == {
        name: row[1] for name, row in processes.items()
    }
    assert all(processes[name][3].endswith("iB") for name in ("shard-0", "shard-1", "gateway-0", "session-0", "admin-0"))
    assert tab.ask("document.querySelector('.chart svg').getAttribute('aria-label')").startswith("Messages: published 0/s")


def test_clients_are_found_filtered_and_paged(stage: Stage) -> None:
    """Who is connected, who is away; the second page has the others."""
    stage.go("clients?state=connected")
    found = stage.rows("Clients", 2)
    assert {name: (row[1], row[2]) for name, row in found.items()} == {
        "stuck": ("connected", "durable"), "publisher": ("connected", "ephemeral"),
    }  # fmt: skip
    stage.go("clients?like=meter-0")
    assert set(stage.rows("Clients", 10)) == {f"meter-0{number}" for number in range(10)}
    stage.go("clients")
    first = set(stage.rows("Clients", 50))
    stage.tab.ask("document.querySelector('[data-key=next]').click()")
    stage.tab.until("document.querySelector('.pager .note').innerText.startsWith('page 2')")
    second = set(stage.rows("Clients"))
    assert len(first | second) == AWAY + 5 and not first & second
    assert "publisher" in first | second


def test_sessions_have_their_lag_and_one_has_its_places(stage: Stage) -> None:
    """As the command says it."""
    stage.go("sessions?like=meter-01")
    stage.tab.until(f"{rows('Sessions')}[0]?.[2] === '31'")
    (row,) = stage.rows("Sessions").values()
    assert row[1:3] == ["away", "31"] and row[3] in ("7 d", "6 d 23 h")
    stage.go("sessions?by=lag")
    assert stage.rows("Sessions", BEHIND + 4)["stuck"][1:3] == ["connected", "31"]
    stage.go("client/stuck")
    (filters,) = stage.rows("Subscriptions").values()
    assert filters[:3] == ["plant/#", "1", "the store"]
    lag = stage.command("sessions", "lag", "stuck")
    tiles = stage.tab.ask("Object.fromEntries([...document.querySelectorAll('.tile')].map((one) => one.innerText.split('\\n')))")
    assert (tiles["Behind"], tiles["Unread"]) == (str(lag["messages"]), str(lag["unread"]))
    # Away and behind the head in both shards: by publisher, all of it lies in one.
    stage.go("client/meter-02")
    assert [row[:1] + row[2:3] for row in stage.rows("Places").values()] == [["plant/+/temp", "31"]]


def test_the_topic_tree_is_walked_with_the_keyboard(stage: Stage) -> None:
    """Levels that vary are marked, children are opened and left with arrows, and the cost of a filter is explained."""
    stage.go("topics?cost=plant/%2B/temp")
    tab = stage.tab
    tab.until("document.querySelectorAll('[role=treeitem]').length > 3")
    tab.until("document.querySelector('.varying') !== null")
    focused = "document.activeElement.querySelector('.level')?.innerText"
    tab.ask("document.querySelector('[role=treeitem]').focus()")
    assert tab.ask(focused) == "plant"
    for key, level in (("ArrowLeft", "plant"), ("ArrowRight", "plant")):
        tab.press(key)
        assert tab.ask(focused) == level
    assert tab.ask("document.activeElement.getAttribute('aria-expanded')") == "true"
    tab.press("ArrowRight")
    assert tab.ask(focused) != "plant" and tab.ask("document.activeElement.getAttribute('aria-level')") == "2"
    # What is open is closed first.
    tab.ask("document.activeElement.getAttribute('aria-expanded') === 'true' || document.activeElement.querySelector('.node').click()")
    tab.press("ArrowLeft")
    assert tab.ask("document.activeElement.getAttribute('aria-expanded')") == "false"
    tab.press("ArrowLeft")
    assert tab.ask(focused) == "plant"
    told = stage.command("topics", "explain", "plant/+/temp")["generations"]
    matching = sum(one["matching"] for one in told)
    assert matching == 31
    tab.until(f"document.querySelector('.tile dd')?.innerText === '{matching}'")


def test_generations_shards_retained_and_alarms_are_shown(stage: Stage) -> None:
    """Real ones, each where it belongs."""
    stage.go("generations")
    generations = stage.rows("Generations", 2)
    bars = stage.tab.ask("[...document.querySelectorAll('.span-of')].map((one) => one.getAttribute('aria-label'))")
    assert len(bars) == len(generations) and all("goes: 7 d once sealed" in bar for bar in bars if "current" in bar)
    stage.go("shards")
    shards = stage.rows("Shards", 2)
    assert sorted(shards) == ["messages/0", "messages/1"] and all(row[1] == "up" for row in shards.values())
    assert sum(int(row[3]) for row in shards.values()) >= 31 and sum(int(row[6]) for row in shards.values()) == AWAY + 3
    stage.go("retained")
    assert [row[:2] for row in stage.rows("Retained messages").values()] == [[f"retained/{EVIL}", "publisher"]]
    stage.go("alarms")
    stage.tab.until(shows("There is none."))
    stage.go("search?q=meter-03")
    assert list(stage.rows("Clients")) == ["meter-03"]


@pytest.mark.parametrize("name", [EVIL, SLASHED, MOVED], ids=["html", "slashes", "direction"])
def test_names_of_clients_are_text(stage: Stage, name: str) -> None:
    """They are shown as they are, and nothing in them is run; what would turn the text around is written out."""
    tab = stage.tab
    wanted = json.dumps(name.replace("\u202e", "\\u202e"))
    stage.go(f"sessions?like={quote(name, safe='')}")
    tab.until(f"{rows('Sessions')}[0]?.[0] === {wanted}")
    tab.ask("document.querySelector('table a').click()")
    tab.until(f"document.querySelector('h1').innerText === {wanted}")
    tab.until(f"{rows('Subscriptions')}[0]?.[0].includes('<img')")
    assert tab.ask("document.querySelectorAll('main img, main script').length") == 0
    assert tab.ask("document.title").endswith("Holdfast") and tab.wrong == []


@pytest.mark.parametrize("width", [1280, 400])
def test_everybody_can_read_every_view(stage: Stage, width: int) -> None:
    """Nothing is wider than the window, no text is too pale in either colours, every control has a name, nothing is asked of others."""
    tab = stage.tab
    for view, text in VIEWS.items():
        stage.go(view, width)
        tab.until(shows(text))
        assert tab.ask(WIDE) == [], view
        assert tab.nameless() == [], view
        for dark in (False, True):
            tab.window(width, 900, dark=dark)
            assert tab.ask(PALE) == [], (view, dark)
            assert tab.ask(DARK) == dark, view
    assert tab.foreign() == [] and tab.wrong == []
    stage.go("", width, dark=True)
    tab.ask("document.querySelector('[name=theme][value=light]').click()")
    assert not tab.ask(DARK)
    stage.go("clients", width, dark=True)
    assert not tab.ask(DARK), "what was chosen is kept"
    tab.ask("document.querySelector('[name=theme][value=auto]').click()")
    assert tab.ask(DARK)


def test_the_menu_of_a_narrow_window(stage: Stage) -> None:
    """It is opened with its button, and Escape leaves it."""
    stage.go("clients", 400)
    tab = stage.tab
    shown = "document.querySelector('nav a').getClientRects().length > 0"
    assert not tab.ask(shown)
    tab.ask("document.querySelector('.menu').focus()")
    tab.press("Enter")
    assert tab.ask(shown) and tab.ask("document.querySelector('.menu').getAttribute('aria-expanded')") == "true"
    tab.press("Escape")
    assert not tab.ask(shown)
    tab.press("/")
    assert tab.ask("document.activeElement.id") == "find"
    tab.write("meter-04")
    tab.press("Enter")
    tab.until("location.hash === '#/search?q=meter-04'")
    # The hash is there before the view: what was on the page until then has a table of this name too.
    tab.until(f"{rows('Clients')}.length === 1")
    assert list(stage.rows("Clients")) == ["meter-04"]


def test_nothing_is_asked_while_nobody_looks(stage: Stage) -> None:
    """Hidden, the page has no timer left; seen again it asks at once."""
    tab = stage.tab
    stage.tab.window(1280, 900)
    added = tab.command("Page.addScriptToEvaluateOnNewDocument", source=TIMERS)
    try:
        tab.visit(f"{stage.address}#/clients")
        stage.rows("Clients")
        tab.until("waiting.size === 2")
        before = tab.ask("performance.getEntriesByType('resource').length")
        tab.ask("hide(true)")
        assert tab.ask("due()") == 0
        tab.ask("hide(false)")
        tab.until(f"performance.getEntriesByType('resource').length >= {before + 2} && waiting.size === 2")
        assert tab.ask("due()") == 2
        tab.until(f"performance.getEntriesByType('resource').length >= {before + 4}")
    finally:
        tab.command("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


def test_files_are_told_once_and_forbid_all_that_is_foreign(stage: Stage) -> None:
    """An ETag, 304 for whoever has it, a policy; no other file than those of the page is told."""
    with urllib.request.urlopen(stage.address, timeout=60) as answer:
        etag = answer.headers["ETag"]
        body = answer.read().decode()
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["Cache-Control"] == "no-cache"
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'self';") and "unsafe" not in HEADERS["Content-Security-Policy"]
    (script,) = re.findall(r'<script type="module" src="/(page/\w+/main.js)">', body)
    with urllib.request.urlopen(f"{stage.address}{script}", timeout=60) as answer:
        assert "immutable" in answer.headers["Cache-Control"] and answer.headers["Content-Type"].startswith("text/javascript")
    for asked, status in ((etag, 304), (f'"x", W/{etag}', 304), ('"x"', 200)):
        request = urllib.request.Request(stage.address, headers={"If-None-Match": asked})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = answer.status
        except urllib.error.HTTPError as error:
            with error:
                found = error.code
        assert found == status, asked
    for name in ("index.html", "nothing.js", "..%2Fapp.py", "app.py"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{stage.address}page/x/{name}", timeout=60)
        with refused.value as answered:
            assert answered.code == 404, name


def test_what_changes_something_wants_a_key_of_scope_write(stage: Stage) -> None:
    """Without it there are no such buttons; a wrong one is refused in a sentence; with it a client is disconnected, a session ended."""
    tab = stage.tab
    stage.go("client/meter-05")
    tab.until(shows("plant/+/temp"))
    buttons = "[...document.querySelectorAll('.head button')].map((one) => one.innerText)"
    assert tab.ask(buttons) == []

    def give(key: str) -> None:
        tab.ask("document.querySelector('.key').click()")
        tab.until("document.activeElement.id === 'key'")
        tab.write(key)
        tab.press("Enter")

    give("wrong.key")
    assert "API key" in tab.until("document.querySelector('dialog .wrong').innerText")
    assert tab.nameless() == []
    tab.press("Escape")
    reading, writing = (stage.command("api-keys", "add", scope, "--scope", scope) for scope in ("read", "write"))
    give(reading["bearer"])
    tab.until("!document.querySelector('dialog').open && document.querySelector('.key').innerText.includes('read')")
    tab.until(shows("plant/+/temp"))
    assert tab.ask(buttons) == []
    tab.ask("document.querySelector('.key').click()")
    give(writing["bearer"])
    tab.until("!document.querySelector('dialog').open && document.querySelector('.key').innerText.includes('write')")
    tab.until(f"{buttons}.length === 1")
    assert tab.ask(buttons) == ["End the session"]
    tab.ask("document.querySelector('.head button').click()")
    assert "31 messages" in tab.until("document.querySelector('dialog[open]')?.innerText")
    tab.ask("document.querySelector('dialog .danger').click()")
    tab.until(shows("Nobody knows this client"))
    stage.go("client/publisher")
    tab.until(f"{buttons}.length === 1")
    tab.ask("document.querySelector('.head button').click()")
    tab.ask("document.querySelector('dialog .danger').click()")
    tab.until(shows("Nobody knows this client"))
    tab.ask("document.querySelector('.key').click()")
    assert tab.ask("sessionStorage.getItem('holdfast.key')") == ""
