"""The end of a process that may not go on: a fault of ours, or a store whose content is unknown.

RAM and disk may differ afterwards, so nothing is cleaned up: the next process reads the disk, and whoever was not answered
asks again.  Ray starts it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final, NoReturn

import structlog

EXIT_CODE = 70

log = structlog.get_logger(__name__)
before_death: Final[list[Callable[[], None]]] = []
"""Of who runs servers here: each writes down what was counted last. They raise nothing."""


def die(event: str, **story: object) -> NoReturn:
    """Log the story, then end this process at once."""
    log.error(event, **story)
    for write in before_death:
        write()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


def die_of(error: Exception, during: str) -> NoReturn:
    """A core raised: its state is not to be trusted any more."""
    die("process.broken", during=during, cause=repr(error), trace="".join(traceback.format_exception(error)))


def dies_with(task: asyncio.Task[Any], during: str) -> None:
    """What is to go on as long as the process does: a fault of it ends the process, which begins anew, and not the task alone, unheard."""

    def ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            die_of(error, during)

    task.add_done_callback(ended)


def log_faults_of_loop() -> None:
    """What callbacks of this loop raise goes into the log of this process, where people look, and not to stderr alone."""
    asyncio.get_running_loop().set_exception_handler(_log_fault)


def _log_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
    log.error("loop.fault", during=str(context.get("message", "")), cause=repr(error), trace=trace)
