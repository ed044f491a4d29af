"""The end of a process that may not go on: a fault of ours, or a store whose content is unknown.

RAM and disk may differ afterwards, so nothing is cleaned up: the next process reads the disk, and whoever was not answered
asks again.  Ray starts it.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

import structlog

EXIT_CODE = 70

log = structlog.get_logger(__name__)


def die(event: str, **story: object) -> NoReturn:
    """Log the story, then end this process at once."""
    log.error(event, **story)
    sys.stderr.flush()
    os._exit(EXIT_CODE)


def die_of(error: Exception, during: str) -> NoReturn:
    """A core raised: its state is not to be trusted any more."""
    die("process.broken", during=during, cause=repr(error), trace=traceback.format_exc())
