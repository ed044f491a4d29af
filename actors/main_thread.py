"""The main thread of an actor's process rests, while its loop works in another one.

Ray keeps the main thread of each of its workers for the calls that it hands over, and has it ask Python a hundred times a second whether
a signal came. Each time it takes the interpreter's lock. That is 5 to 8 ms of CPU a second; under load it waits for the lock, and
is woken up in vain whenever uvloop gives that back for a moment: up to a sixth of what a message costs (docs/performance.md). So twice a
second there is a signal, by which the thread sleeps for most of the time until the next one.

Calls of Ray are heard that much later: a start, a stop, being asked for health, new settings. Nothing else goes through that thread.
What is not as it is here is left alone: a process that is not Ray's, a main thread that is busy with anything but waiting.

The thread that syncs needs the lock as well. A thread asks for the lock when it was refused for an interval, which begins anew each time it
is woken up in vain; with Python's 5 ms there were 8 to 10 syncs a second beside a session that drains, instead of 29 to 41. So the
interval is shorter than what lies between two such times.

Always holds: the thread is there for at least EVERY_S - REST_S of each EVERY_S, and all the time until FIRST_S after the start and
once the end has begun.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from _thread import interrupt_main
from types import FrameType
from typing import Final

FIRST_S: Final = 5.0
EVERY_S: Final = 0.5
REST_S: Final = 0.45
ASK_S: Final = 0.0005
"""So long a thread waits for the interpreter's lock before it asks for it."""
NUMBER: Final = signal.SIGUSR2
WAITS_IN: Final = "main_loop"
"""The function of Ray's in which the main thread waits for calls."""


def prepare() -> None:
    """Called by the main thread, when Ray has it read what its actor is."""
    sys.setswitchinterval(ASK_S)
    if threading.current_thread() is threading.main_thread():
        signal.signal(NUMBER, _rest)


def _rest(_number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code.co_name == WAITS_IN:
        # What ends the process raises in the handler of another signal, and ends this too.
        time.sleep(REST_S)


class Resting:
    """Has the main thread rest from FIRST_S after `begin` until `end`."""

    def __init__(self) -> None:
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """On the loop, once, when what is to be started is started or begins to be."""
        if signal.getsignal(NUMBER) is _rest:
            self._next = asyncio.get_running_loop().call_later(FIRST_S, self._again)

    def end(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _again(self) -> None:
        # No signal of the system's: only what Python looks at when it is asked is set.
        interrupt_main(NUMBER)
        self._next = asyncio.get_running_loop().call_later(EVERY_S, self._again)
