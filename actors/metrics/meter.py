"""Writes down once a second what its process has counted: nothing that serves clients ever waits for a metric, or pays for one.

The turn is a timer of the loop, so that what it is late is how long the loop was busy with something else.

Always holds: whatever goes wrong here, a full disk for one, is a line of the log and a gap in the figures, and nothing else.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from actors.alarms import write_again
from actors.metrics.latency import Latency
from actors.metrics.of_process import ProcessFigures

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)
Measure = Callable[["Sheet"], None]


class Meter:
    """Life cycle: made -> started -> stopped."""

    def __init__(self, run_dir: Path, name: str, measure: Measure | None, *, shares: bool = False) -> None:
        """measure: writes what its server has counted into the sheet. On the loop, so no longer than a message takes.
        shares: the process with others (ProcessFigures)."""
        self._run_dir = run_dir
        self._name = name
        self._measure = measure
        self._late = Latency()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._sheet: Sheet | None = None
        self._figures = ProcessFigures(name, shares=shares)
        self._begun = self._stopped = False
        self._failed = ""

    def start(self) -> None:
        """On the loop. The first values are written in a moment."""
        loop = asyncio.get_running_loop()

        def load() -> None:
            # What it brings along takes 30 ms to import, while clients are served already.
            importlib.import_module("actors.metrics.sheet")
            # A loop that has ended meanwhile has nothing to write.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._begin)

        threading.Thread(target=load, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """With what was counted last."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self.write()
        if self._sheet is not None:
            self._sheet.close()
            self._sheet = None

    def write(self) -> None:
        """Also the last thing of a process that ends itself (actors.fatal)."""
        try:
            sheet = self._open()
            if sheet is None:
                return
            sheet.now_s = time.time()
            if self._measure is not None:
                self._measure(sheet)
            self._figures.write(sheet, self._late)
            failed = f"no room for {', '.join(sheet.left_out)}" if sheet.left_out else ""
        except Exception as error:  # A figure must not end what it is about.
            failed = repr(error)
        if failed and failed != self._failed:
            log.warning("metrics.not_written", process=self._name, cause=failed)
        self._failed = failed

    def _begin(self) -> None:
        if self._stopped:
            return
        self._begun = True
        self._due = asyncio.get_running_loop().time()
        self._turn()

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        self._late.note(max(0.0, loop.time() - self._due))
        self.write()
        write_again()
        self._due = loop.time() + EVERY_S
        self._timer = loop.call_at(self._due, self._turn)

    def _open(self) -> Sheet | None:
        if self._sheet is None and self._begun and not self._stopped:
            from actors.metrics.sheet import Sheet, incarnation

            self._sheet = Sheet(self._run_dir, incarnation(self._name))
        return self._sheet
