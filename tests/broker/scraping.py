"""Reads `/metrics` of a running broker, again and again, and finds what must not be: a count that falls, or is gone."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tests.broker.running import RunningBroker

WITHIN_S = 60.0
EVERY_S = 0.25
Key = tuple[str, ...]
"""Name of a sample and values of its labels, by the names of these."""


def port_of(broker: RunningBroker) -> int:
    """Of the admin process, which comes when everybody else is there."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        for each in broker.status().listeners:
            if each.kind == "admin":
                return each.port
        time.sleep(0.2)
    raise AssertionError(f"no admin process after {WITHIN_S:.0f} s")


@dataclass(slots=True)
class Scraped:
    values: dict[Key, float] = field(default_factory=dict)
    growing: set[Key] = field(default_factory=set)
    """Counters, and what histograms consist of."""
    names: set[str] = field(default_factory=set)
    """Of samples, and of metrics that have none."""

    @classmethod
    def parse(cls, text: str) -> Self:
        found = cls()
        for family in text_string_to_metric_families(text):
            # The parser gives every counter the ending that EMQX's have not.
            emqx = family.name.startswith("emqx_")
            found.names.add(family.name + ("_total" if family.type == "counter" and not emqx else ""))
            for sample in family.samples:
                name = sample.name.removesuffix("_total") if emqx else sample.name
                key = (name, *[value for _, value in sorted(sample.labels.items())])
                found.names.add(name)
                found.values[key] = sample.value
                if family.type in ("counter", "histogram"):
                    found.growing.add(key)
        return found

    def sum(self, name: str, *labels: str) -> float:
        """Over all samples of this name that have these values among their labels."""
        return sum([value for key, value in self.values.items() if key[0] == name and set(labels) <= set(key[1:])])


def scrape(port: int) -> Scraped:
    """Raises OSError while nobody answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Scraped.parse(answer.read().decode())


def falls(before: Scraped, after: Scraped) -> list[str]:
    wrong = []
    for key in sorted(before.growing):
        now = after.values.get(key)
        if now is None or now < before.values[key]:
            wrong.append(f"{key}: {before.values[key]} -> {now}")
    return wrong


class Watch:
    """Scrapes all the time, in a thread of its own, until it is left."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self.scrapes = 0
        self.unanswered = 0
        self.fallen: list[str] = []
        self.last = Scraped()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def until(self, wanted: Mapping[Key, float]) -> Scraped:
        """Until these are at least so much; AssertionError after a minute."""
        deadline = time.monotonic() + WITHIN_S
        with self._changed:
            while left := {key: self.last.values.get(key) for key, least in wanted.items() if self.last.values.get(key, 0.0) < least}:
                assert self._changed.wait(max(0.0, deadline - time.monotonic())), f"after {WITHIN_S:.0f} s: {left}, wanted {dict(wanted)}"
            return self.last

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            try:
                found = scrape(self._port)
            except OSError:
                self.unanswered += 1
                continue
            with self._changed:
                self.fallen += falls(self.last, found)
                self.last = found
                self.scrapes += 1
                self._changed.notify_all()
