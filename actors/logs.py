"""Where a process writes its log: one file of its own in the data directory, bounded.

One line per event, as `key=value` or as JSON. Two files of LOG_BYTES_MAX at most, the older one called `.1`.

A process that ends in a library, by a signal, cannot log it. What such a one says goes to standard error, and that into a file beside its
log: Ray keeps it in the run directory, which is gone with the broker.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from pathlib import Path
from typing import TextIO

import structlog

from actors.topology import LogLevel

LOG_BYTES_MAX = 8 * 1024 * 1024
ERROR_BYTES_MAX = 1 << 20
"""Of standard error, as a process that begins finds it: then it is moved aside. A stack has some kilobytes."""
_STDERR = 2
_FIRST = ("at", "level", "event", "who", "pid")


class BoundedFile:
    """A log file that moves itself aside when it is full. Writing never raises: a full disk must not end a broker that copes with it."""

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._file: TextIO | None = None
        self._size = 0

    def write(self, text: str) -> None:
        try:
            if self._file is None or self._size >= self._bytes_max:
                self._open()
            assert self._file is not None
            self._size += self._file.write(text)
        except OSError:
            self._file = None

    def flush(self) -> None:
        if self._file is not None:
            try:
                self._file.flush()
            except OSError:
                self._file = None

    def _open(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._path.exists() and self._path.stat().st_size >= self._bytes_max:
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115  # it stays open
        self._size = self._path.stat().st_size


def open_log(path: Path, level: LogLevel, *, as_json: bool, who: str) -> None:
    """From now on this process logs to this file, as `who`."""
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.processors.LogfmtRenderer(key_order=_FIRST, bool_as_flag=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _Bind({"who": who, "pid": os.getpid()}),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=BoundedFile(path)),  # type: ignore[arg-type]  # it needs write and flush only
        cache_logger_on_first_use=False,
    )


def keep_last_words(path: Path) -> None:
    """Standard error of this process goes on in this file, with the stacks of all threads when a signal ends it.  What libraries say there
    comes too.  Never raises: without the file it is where it was."""
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size >= ERROR_BYTES_MAX:
            os.replace(path, path.with_name(path.name + ".1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(descriptor, _STDERR)
        os.close(descriptor)
    faulthandler.enable(_STDERR)


def set_level(level: LogLevel) -> None:
    """From now on; loggers that were made before follow."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


class _Bind:
    """Adds the same keys to every event, those of threads and tasks that never heard of them included."""

    def __init__(self, keys: dict[str, object]) -> None:
        self._keys = keys

    def __call__(self, _logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**self._keys, **event}
