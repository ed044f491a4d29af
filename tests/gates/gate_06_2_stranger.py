"""Gate 2 of issue 6: a stranger's tasks, scripted from the docs only.

All boxes of the pages that are marked as tasks are done in their order, against a real broker (tests/gates/stranger.py). Beyond what they
say they print it is looked whether every panel of the dashboard shows something, whether those of the traffic show that it flows, and
whether the sum that Prometheus has is that of what was sent.
"""

from __future__ import annotations

import asyncio
import time

from tests.gates.gate import GateFailed, Scale
from tests.gates.panels import ask, panels
from tests.gates.stranger import Box, Stranger, Stuck, boxes
from tests.needs import ROOT, find_program

LIMIT_S = 900
BOX_S = 180.0
SHOWN_S = 90.0
PAGES = ("first-day.md", "load-balancers.md")
TASKS = {
    "start": "a broker",
    "tls": "TLS and a password",
    "acl": "an ACL",
    "dashboard": "a dashboard",
    "slowest": "the slowest session",
    "wildcard": "a wildcard's cost",
    "backup": "back up and restore",
    "stop": "the end of the day",
    "balancer": "HAProxy in front",
}
"""In their order."""
PROGRAMS = {
    "openssl": "openssl",
    "mosquitto_pub": "mosquitto-clients",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "haproxy": "haproxy",
}
DASHBOARD = ROOT / "deploy/grafana/holdfast.json"
FLOWING = ("Messages", "Bytes", "PUBLISH to acknowledgement", "Commit and sync")
"""Panels that show more than 0 while messages come."""
SENT = 301
"""What the boxes have published until then."""


async def run(scale: Scale) -> str:
    lacking = sorted({package for program, package in PROGRAMS.items() if find_program(program) is None})
    if lacking:
        raise GateFailed(f"a stranger wants {', '.join(lacking)} of Debian (make system-deps)")
    return await asyncio.to_thread(_tasks)


def _tasks() -> str:
    todo = [box for page in PAGES for box in boxes(ROOT / "docs" / page)]
    if list(dict.fromkeys(box.task for box in todo)) != list(TASKS):
        raise GateFailed(f"the pages have the tasks {list(dict.fromkeys(box.task for box in todo))}, wanted are {list(TASKS)}")
    stranger = Stranger()
    done: list[str] = []
    shown = ""
    try:
        for task, words in TASKS.items():
            for box in (each for each in todo if each.task == task):
                _does(stranger, box)
            if task == "dashboard":
                shown = _dashboard(stranger.ports["9090"])
            done.append(words)
        if left := stranger.left():
            raise Stuck(f"still running at the end: {', '.join(left)}")
    except Stuck as error:
        stranger.end(keep=True)
        raise GateFailed(f"{len(done)} of {len(TASKS)} tasks; {error}; {stranger.home} is kept") from None
    except BaseException:
        stranger.end(keep=True)
        raise
    stranger.end(keep=False)
    return f"{len(done)} of {len(TASKS)} tasks ({', '.join(done)}) in {len(todo)} boxes of {', '.join(PAGES)}; {shown}"


def _does(stranger: Stranger, box: Box) -> None:
    began = time.monotonic()
    stranger.does(box, BOX_S)
    print(f"  {box.place}: {time.monotonic() - began:.1f} s", flush=True)


def _dashboard(port: str) -> str:
    """Raises Stuck when something has shown nothing at any look."""
    look = Look(port)
    deadline = time.monotonic() + SHOWN_S
    while wrong := look.again():
        if time.monotonic() > deadline:
            raise Stuck(f"the dashboard, after {SHOWN_S:.0f} s: {'; '.join(wrong[:5])}")
        time.sleep(1)
    return f"{look.queries} queries of {look.panels} panels asked, each panel has numbers"


class Look:
    """Whoever sits before the dashboard: what he has seen once he has seen, though messages come for a while only."""

    def __init__(self, port: str) -> None:
        self._port = port
        self._all = panels(DASHBOARD)
        self._blank = {panel.title for panel in self._all}
        self._still = set(FLOWING)
        self.panels, self.queries = len(self._all), sum(len(panel.queries) for panel in self._all)

    def again(self) -> list[str]:
        """What is wrong."""
        try:
            for panel in self._all:
                values = [value for query in panel.queries for value in ask(self._port, query)]
                self._blank -= {panel.title} if values else set()
                self._still -= {panel.title} if any(value > 0 for value in values) else set()
            stored = ask(self._port, "sum(emqx_ds_egress_messages)")
        except OSError as error:
            return [f"Prometheus: {error}"]
        wrong = [f"{title!r} shows nothing" for title in sorted(self._blank)]
        wrong += [f"{title!r} shows no traffic" for title in sorted(self._still)]
        return wrong if stored == [SENT] else [*wrong, f"{SENT} messages were sent, Prometheus has {stored}"]
