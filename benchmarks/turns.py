"""What a benchmark does in which order: turns, and the standard set of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.scenarios import Options
from benchmarks.wire import Version

Transport = Literal["tcp", "tls", "web"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One scenario of the set."""

    scenario: str
    options: Options
    mosquitto: Options | None
    """None: nothing is to be learned from mosquitto, and Holdfast runs alone."""
    repeats: int
    variant: str = ""
    version: Version | None = None
    """None: the one that was asked for."""
    transport: Transport = "tcp"

    def of(self, broker: str) -> Options | None:
        return self.mosquitto if broker == "mosquitto" else self.options


def standard_set(*, quick: bool, repeats: int) -> list[Turn]:
    """The scenarios in their order, with the amounts for a full or a quick run."""
    seconds = 1.5 if quick else 3.0
    timed = Options(seconds=seconds, hard_s=60)
    stored = Options(messages=20_000 if quick else 60_000, hard_s=60)
    # A store for many sessions is cheap here: fewer messages could not tell 10 % from what a broker does anyway.
    stored_for_many = 60_000 if quick else 150_000
    many = Options(messages=stored_for_many, sessions=200 if quick else 1000, topics=10, sessions_drained=3, hard_s=90)
    # mosquitto keeps a copy for each session: what costs Holdfast one store costs it a thousand, so it gets fewer messages.
    many_copies = replace(many, messages=400)
    paced = Options(seconds=2.0 if quick else 5.0)
    return [
        Turn("ingest", replace(timed, seconds=min(seconds, 2.0)), replace(timed, seconds=min(seconds, 2.0)), repeats),
        Turn("offline", stored, stored, repeats),
        Turn("fan-in", timed, timed, repeats),
        Turn("fan-out", timed, timed, repeats),
        Turn("pairs", timed, timed, repeats),
        Turn("sessions", many, many_copies, 1),
        Turn("single", timed, timed, 1),
        Turn("latency", paced, paced, 1),
    ]
