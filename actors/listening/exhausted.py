"""No descriptors are left for those who come: counted, and an alarm until nobody was turned away by it for CALM_SECONDS.

An alarm is a file, and needs a descriptor too, so one is kept for it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from actors.alarms import Alarm, clear_alarm, raise_alarm

KIND: Final = "descriptors"
CALM_SECONDS: Final = 10.0


class Exhausted:
    """name: of this process, as alarms have it."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._run_dir = run_dir
        self._name = name
        self.times = 0
        """How often a door had to rest."""
        self._raised = False
        self._calm: asyncio.TimerHandle | None = None
        self._kept: int | None = os.open(os.devnull, os.O_RDONLY)

    def met(self, listener: str, cause: str) -> None:
        self.times += 1
        if not self._raised:
            self._raised = self._write(f"nobody new gets in by listeners.{listener}: {cause}; more open files have to be allowed")
        if self._calm is not None:
            self._calm.cancel()
        self._calm = asyncio.get_running_loop().call_later(CALM_SECONDS, self._over)

    def close(self) -> None:
        if self._calm is not None:
            self._calm.cancel()
        if self._kept is not None:
            os.close(self._kept)
            self._kept = None

    def _write(self, cause: str) -> bool:
        if self._kept is None:
            return False
        os.close(self._kept)
        self._kept = None
        # If the whole machine has none: said when the next one is met.
        written = raise_alarm(self._run_dir, Alarm(self._name, KIND, cause))
        self._keep()
        return written

    def _over(self) -> None:
        self._calm = None
        self._raised = False
        clear_alarm(self._run_dir, self._name, KIND)
        self._keep()

    def _keep(self) -> None:
        if self._kept is None:
            try:
                self._kept = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return
