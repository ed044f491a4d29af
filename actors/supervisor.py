"""Keeps one broker running: starts the driver, waits for the broker to answer, starts all of it again when what must live has died.

    starting -> running -> (fallen -> starting)* -> stopped

What must live: the driver and, of a Ray of our own, its head and its raylet; of one that was joined, its raylet here. The kernel tells of
their end (pidfd), so nothing is polled for it. Everything else is put back by Ray. A gateway is ended when its heart stands still; Ray then
puts it back as well.

Always holds: at most one driver; it is started only when nothing of the one before it is left, because a worker that outlived its
raylet still holds its store and its port.

There is no event loop in this process: it waits in poll, or sleeps.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Literal

import structlog

from actors.belongings import started_here
from actors.environment import NO_USE, driver_environment
from actors.heartbeat import read_beat
from actors.probe import all_answer
from actors.processes import ProcessId, alive, end, identify, send, starved_s
from actors.topology import Announced, ListenerInfo, Topology, member_name, read_announcements, read_needed

STARTING_TICK_S = 0.05
RUNNING_TICK_S = 0.5
STOPPING_TICK_S = 0.02
PROBE_S = 1.0
STOP_DRIVER_S = 30.0
END_S = 10.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
OUTPUT_BYTES_MAX = 1024 * 1024
KEPT = ("topology.json", "origin.json", "settings.json", "secrets.json", "access.json", "driver.error")
"""What is in the run directory and outlives a start of the driver."""

State = Literal["starting", "running", "stopped"]


@dataclass(slots=True)
class Pulse:
    """What a gateway's heart was last seen at.  starved_s: of its thread, then."""

    pid: int
    count: int
    since: float
    starved_s: float

    def still_s(self, now: float, starved_s: float) -> float:
        """So long it has stood still though it could have beaten: what it waited for a processor is the machine's."""
        return now - self.since - max(0.0, starved_s - self.starved_s)


class Supervisor:
    """Carries one Topology out. `step` is one turn: wait a little for something to happen, then look."""

    def __init__(self, topology: Topology, table: str, watchdog_after: float | None, wakeup: int) -> None:
        self.state: State = "starting"
        self.running_since = 0.0
        self._topology = topology
        self._table = table
        self._watchdog_after = watchdog_after
        self._wakeup = wakeup
        """A descriptor that becomes readable when a signal has come."""
        self._driver: subprocess.Popen[bytes] | None = None
        self._watched: dict[int, tuple[str, ProcessId]] = {}
        self._poll = select.poll()
        self._poll.register(wakeup, select.POLLIN)
        self._started_at = 0.0
        self._pause = 0.0
        self.failures = 0
        """Starts in a row that did not come to run."""
        self.hopeless = False
        """The driver has said that the next start will not come to run either."""
        self._pulses: dict[int, Pulse] = {}
        self._last_step = time.monotonic()
        self._log = structlog.get_logger()

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the driver. Nothing of a former one is left."""
        topology = self._topology
        for path in topology.run_dir.iterdir():
            if path.suffix in (".json", ".sock", ".beat", ".error", ".settings", ".part") and path.name not in KEPT:
                path.unlink(missing_ok=True)
        output = topology.log_dir / "driver.out"
        too_long = output.exists() and output.stat().st_size > OUTPUT_BYTES_MAX
        with open(output, "wb" if too_long else "ab") as file:
            self._driver = subprocess.Popen(
                # -P: the directory we start in is not a place to import from.
                [sys.executable, "-P", "-m", "actors.driver", str(topology.run_dir), self._table, str(os.getpid())],
                cwd=topology.data_dir,
                env=driver_environment(topology),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                # A session of its own: Ctrl-C in our terminal is for us, we stop the others in order.
                start_new_session=True,
            )
        self.state = "starting"
        self._started_at = time.monotonic()
        driver = identify(self._driver.pid)
        if driver is not None:
            self._watch("driver", driver)
        self._log.info("driver.started", driver_pid=self._driver.pid)

    def step(self) -> None:
        """Wait for a signal, a death or the next tick; then do what is due."""
        # A signal that did not ask to stop may have cut the pause before a start short.
        if self._driver is None and not self._start_again():
            return
        fallen = self._wait()
        self._reap()
        if self.state == "starting" and len(self._watched) == 1:
            for name, process in read_needed(self._topology.run_dir):
                self._watch(name, process)
        fallen = fallen or self._driver_ended()
        if fallen is not None:
            self._restart(fallen)
        elif self.state == "starting":
            self._look_whether_it_runs()
        elif self._watchdog_after is not None:
            self._watch_hearts(self._watchdog_after)
        self._last_step = time.monotonic()

    def stop(self, hurry: bool) -> None:
        """End everything: in good order if there is a driver to do that and time to wait for it."""
        if self._driver is not None and not hurry:
            driver = identify(self._driver.pid)
            if driver is not None and send(driver, signal.SIGTERM):
                deadline = time.monotonic() + STOP_DRIVER_S
                while alive(driver) and time.monotonic() < deadline:
                    time.sleep(STOPPING_TICK_S)
                    self._reap()
                if alive(driver):
                    self._log.error("driver.does_not_stop", waited_s=STOP_DRIVER_S)
        self._end_all()
        self.state = "stopped"

    # ------------------------------------------------------------------ what is seen

    def members(self) -> dict[str, Announced]:
        """Those that have announced themselves and live."""
        return {each.announcement.name: each for each in read_announcements(self._topology.run_dir) if alive(each.process)}

    def listeners(self) -> list[ListenerInfo]:
        return [listener for each in self.members().values() for listener in each.announcement.listeners]

    def complaints(self) -> list[str]:
        """Why it has not started yet, in the words of those who tried."""
        found = []
        for path in sorted(self._topology.run_dir.glob("*.error")):
            try:
                found.append(f"{path.stem}: {path.read_text(encoding='utf-8')}")
            except OSError:
                continue
        return found

    def missing(self) -> list[str]:
        expected = [member_name(*member) for member in [*self._topology.members(), ("controller", 0)]]
        return sorted(set(expected) - self.members().keys())

    # ------------------------------------------------------------------ parts of a step

    def _wait(self) -> str | None:
        tick = STARTING_TICK_S if self.state == "starting" else RUNNING_TICK_S
        fallen = None
        for descriptor, _ in self._poll.poll(tick * 1000):
            if descriptor in self._watched:
                fallen = self._watched[descriptor][0]
        return fallen

    def _watch(self, name: str, process: ProcessId) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return
        self._watched[descriptor] = (name, process)
        self._poll.register(descriptor, select.POLLIN)

    def _reap(self) -> None:
        """Bury children, adopted ones too. The driver's end is asked of Popen, so that it is not taken from under it."""
        if self._driver is not None:
            self._driver.poll()
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None or (self._driver is not None and info.si_pid == self._driver.pid):
                return
            os.waitpid(info.si_pid, os.WNOHANG)

    def _driver_ended(self) -> str | None:
        return "driver" if self._driver is not None and self._driver.returncode is not None else None

    def _restart(self, fallen: str) -> None:
        lasted = time.monotonic() - self.running_since if self.state == "running" else 0.0
        self._pause = pause_before_start(self.state == "running", self._pause)
        self.failures += self.state == "starting"
        self.hopeless = self._driver is not None and self._driver.returncode == NO_USE
        self._log.error("run.fallen", what=fallen, state=self.state, lasted_s=round(lasted, 1), again_in_s=self._pause)
        self.state = "starting"
        self._end_all()
        if self._rested():
            self._start_again()

    def _start_again(self) -> bool:
        """A machine that has no memory or no file left for a driver may have some later: whoever waits here is all that can start one."""
        try:
            self.start()
        except OSError as error:
            self.failures += 1
            self._pause = pause_before_start(False, self._pause)
            self._log.error("driver.not_started", reason=str(error), again_in_s=self._pause)
            self._rested()
            return False
        return True

    def _rested(self) -> bool:
        """For the pause before a start. False when a signal has cut it short: our owner decides before anything is started."""
        deadline = time.monotonic() + self._pause
        while (left := deadline - time.monotonic()) > 0:
            if any(descriptor == self._wakeup for descriptor, _ in self._poll.poll(left * 1000)):
                return False
        return True

    def _look_whether_it_runs(self) -> None:
        if self.missing() or not all_answer(self.listeners(), PROBE_S):
            return
        self.state = "running"
        self.failures = 0
        self.running_since = time.monotonic()
        self._pulses.clear()
        self._log.info("run.answers", after_s=round(self.running_since - self._started_at, 2))

    def _watch_hearts(self, after: float) -> None:
        now = time.monotonic()
        if now - self._last_step > RUNNING_TICK_S + 1.0:
            # We were not scheduled ourselves, or the machine was suspended: what we saw before says nothing about anybody.
            self._pulses.clear()
        for index in range(self._topology.n_gateways):
            beat = read_beat(self._topology.heartbeat_path(index))
            if beat is None:
                continue
            pulse, starved = self._pulses.get(index), starved_s(beat.pid, beat.thread)
            if pulse is None or (pulse.pid, pulse.count) != (beat.pid, beat.count) or beat.stands:
                self._pulses[index] = Pulse(beat.pid, beat.count, now, starved)
            elif (still_s := pulse.still_s(now, starved)) >= after:
                self._end_stuck(index, beat.pid, still_s)
                pulse.since, pulse.starved_s = now, starved

    def _end_stuck(self, index: int, pid: int, still_s: float) -> None:
        name = member_name("gateway", index)
        announced = self.members().get(name)
        if announced is None or announced.process.pid != pid:
            return  # It is gone already, and Ray is at it.
        self._log.error("gateway.stuck", gateway=index, gateway_pid=pid, still_s=round(still_s, 1))
        send(announced.process, signal.SIGKILL)

    def _end_all(self) -> None:
        for descriptor in self._watched:
            self._poll.unregister(descriptor)
            os.close(descriptor)
        self._watched.clear()

        def ours() -> list[ProcessId]:
            self._reap()
            return started_here(self._topology.run_dir, joined=self._topology.ray.joined)

        first = ours()
        # A Ray that is not ours restarts what we kill, and this is how the restarted learn that they are not wanted.
        self._topology.generation_path.unlink(missing_ok=True)
        left = end(lambda: [*first, *ours()], within=END_S)
        self._reap()
        self._driver = None
        if left:
            self._log.error("run.not_ended", pids=[process.pid for process in left])


def pause_before_start(ran: bool, before: float) -> float:
    """None after a run that answered, however short: its clients wait, and a start takes seconds by itself, so this cannot spin.

    A start that did not come to answer is given more and more time for the cause to go away.
    """
    return 0.0 if ran else min(max(before * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)
