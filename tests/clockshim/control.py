"""Moves the clocks of the processes that were started with its environment: steps of the wall clock, and reboots.

``Clocks`` owns a control file that each of these processes maps (clockshim.c says what it does with it), and the boot id they
see. It starts nothing: it gives the environment to start with. The clocks of the machine itself are never touched.

Holds: what these processes see of the wall clock is ``wall_ms()``, at every moment.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import uuid
from pathlib import Path

from tests.faultdisk.build import compiled

MAGIC = 0x314B4C43
CONTROL = struct.Struct("<IIqq256s")
_BOOTS, _REALTIME, _BOOTTIME = 4, 8, 16
SOURCES = ("clockshim.c",)


class Clocks:
    """The clocks that some processes see: the machine's own, until they are moved."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._boot_id = directory / "boot_id"
        self._control = directory / "clocks"
        self._control.write_bytes(CONTROL.pack(MAGIC, 0, 0, 0, os.fsencode(self._boot_id)))
        descriptor = os.open(self._control, os.O_RDWR)
        self._shared = mmap.mmap(descriptor, CONTROL.size)
        os.close(descriptor)

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(compiled("clockshim", Path(__file__).parent, SOURCES)), "CLOCKSHIM_CONTROL": str(self._control)}

    def wall_ms(self) -> int:
        return (time.time_ns() + self._get(_REALTIME)) // 1_000_000

    def step(self, seconds: float) -> None:
        """The wall clock is set; nothing else changes."""
        self._set(_REALTIME, self._get(_REALTIME) + round(seconds * 1e9))

    def reboot(self, off_s: float = 0.0) -> None:
        """Another boot id, and the time since boot counts anew; ``off_s``: the wall clock says that it was off for so long.

        Processes that run meanwhile would see what no process sees: end them before.
        """
        self._boot_id.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        self._set(_BOOTTIME, 5_000_000_000 - time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        self.step(off_s)
        struct.pack_into("<I", self._shared, _BOOTS, struct.unpack_from("<I", self._shared, _BOOTS)[0] + 1)

    def _get(self, at: int) -> int:
        (value,) = struct.unpack_from("<q", self._shared, at)
        assert isinstance(value, int)
        return value

    def _set(self, at: int, value: int) -> None:
        struct.pack_into("<q", self._shared, at, value)
