"""A soak: a broker under traffic for so long, a random process of it killed every few seconds, and everything checked all the time.

``python -m tests.gates.soak 20m [--seed N]`` (``make soak-20m``; also 90s, 2h) prints a line a minute and the figures at the end, and ends
by itself. Two gateways, two shards. Killed with SIGKILL are gateways, session actors, shards and the controller, now and then the driver
and what belongs to Ray, and now and then one more while the broker is still coming back from the last; the second gateway, session actor
and shard are mostly spared, so that some processes get old enough to show how they grow. The launcher is nobody's victim: it is the
service manager's to bring back.

Checked while it runs: nothing acknowledged is lost, QoS 2 comes once, in order, no message for whoever wants none (soak_ledger.py);
nobody waits too long for a delivery or an acknowledgement (soak_stalls.py). At the end all that is due arrives, all processes are
there, no session was lost, no log tells of a fault of ours, and what the broker takes is flat (soak_watch.py). Generations are short, so
that many roll and go meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.broker.history import summary
from tests.broker.running import LAUNCHER_ROLE, CommandFailed, Process, Status, alive
from tests.gates.footprint import MB
from tests.gates.gate import ROLES, GateFailed, Watched, running, settings
from tests.gates.show import one_line
from tests.gates.soak_crowd import Crowd
from tests.gates.soak_ledger import Ledger
from tests.gates.soak_stalls import LAG_S, Stalls, Waiting
from tests.gates.soak_watch import Watch, bad_events, judge
from tests.gates.traffic import require_sessions_kept

N_SHARDS = 2
SETTINGS = {
    "gateway.count": "2",
    "durable_storage.messages.generation_length": "40s",
    "durable_sessions.message_retention_period": "200s",
    "durable_sessions.session_gc_interval": "30s",
}
"""Generations roll and are dropped all the time, long after everybody has read them."""
PUBLISHERS = 6
PER_SECOND = 10.0
KILL_S = (3.0, 8.0)
STATUS_S = 0.7
"""About what it takes to ask who is there."""
RAY_PART = 0.03
SPARED_PART = 0.85
WHILE_DOWN_PART = 0.25
SETTLE_S = 60.0
UNDER_WAY = frozenset("riw")
"""Kinds of home rows: ranges, incoming ids, routes that are to be removed."""
BACK_S = 40.0
LOOK_S = 5.0
FORGET_AFTER_S = 60.0
_UNITS = {"s": 1, "m": 60, "h": 3600}

Say = Callable[[str], None]


def seconds_of(name: str) -> float:
    """``90s``, ``20m``, ``2h``."""
    match = re.fullmatch(r"(\d+)([smh])", name)
    if match is None:
        raise ValueError(f"{name!r} is no duration; wanted something like 90s, 20m or 2h")
    return float(match[1]) * _UNITS[match[2]]


class Soak:
    """One run; ``run`` returns the figures or raises GateFailed with the story."""

    def __init__(self, watched: Watched, seconds: float, seed: int, say: Say) -> None:
        self._watched = watched
        self._seconds = seconds
        self._say = say
        self._chance = random.Random(seed)
        self._ledger = Ledger()
        self._watch = Watch()
        self._status = watched.broker.status()
        self._roles = Counter(each.role for each in self._status.processes if each.role in ROLES)
        self._crowd = Crowd(watched.broker.port, self._own_ports, self._ledger, random.Random(seed + 1), PUBLISHERS, PER_SECOND)
        self._killed: Counter[str] = Counter()
        self._stories: list[str] = []
        self._began = time.monotonic()
        self._stalls = Stalls()

    async def run(self) -> str:
        try:
            await self._crowd.begin()
            self._began = self._watch.began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for part in (self._kill(), self._judge(), self._look(), self._minutes()):
                    group.create_task(part)
            await self._end()
        except* GateFailed as failed:
            raise GateFailed(f"{one_line(failed.exceptions[0])}; killed last: {'; '.join(self._stories[-6:])}") from failed
        finally:
            await self._crowd.leave()
        return self._figures()

    def _own_ports(self) -> list[int]:
        return [listener.port for listener in self._status.listeners if not listener.shared]

    @property
    def _at_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def _over(self) -> bool:
        return self._at_s >= self._seconds

    # ------------------------------------------------------------------- parts that run all the time

    async def _kill(self) -> None:
        chance = self._chance
        last = time.monotonic()
        while not self._over:
            due = last + chance.uniform(*KILL_S) - STATUS_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            ready = await self._new_status()
            if not ready and chance.random() > WHILE_DOWN_PART:
                ready = await self._ready_again()
            victim = self._victim()
            last = time.monotonic()
            if victim is None:
                continue
            await asyncio.to_thread(self._watched.broker.kill, victim.pid)
            self._killed[victim.role if victim.role != "ray" else victim.name] += 1
            self._stories.append(f"{victim.name} ({victim.pid}) at {self._at_s:.1f} s{'' if ready else ', while not ready'}")

    async def _ready_again(self) -> bool:
        while not self._over:
            await asyncio.sleep(0.3)
            if await self._new_status():
                return True
        return False

    async def _new_status(self) -> bool:
        """Whether the broker says that it is ready; while things are coming back it may say nothing."""
        try:
            self._status = await self._watched.status()
            return self._status.ready
        except CommandFailed:
            return False

    def _victim(self) -> Process | None:
        chance = self._chance
        listed = [each for each in self._status.processes if each.role != LAUNCHER_ROLE and alive(each.pid)]
        of_ray = [each for each in listed if each.role not in ROLES]
        ours = [each for each in listed if each.role in ROLES]
        if chance.random() < SPARED_PART:
            ours = [each for each in ours if not each.name.endswith("-1")]
        chosen = of_ray if chance.random() < RAY_PART else ours
        # Sorted by role and name, so that a seed means the same choices whatever the pids are.
        return chance.choice(sorted(chosen, key=lambda each: (each.role, each.name))) if chosen else None

    async def _judge(self) -> None:
        while not self._over:
            await asyncio.sleep(1.0)
            self._require_right()
            self._require_no_stall()

    async def _look(self) -> None:
        while not self._over:
            await asyncio.sleep(LOOK_S)
            self._ledger.forget(time.monotonic_ns() - int(FORGET_AFTER_S * 1e9))
            self._crowd.forget()
            await asyncio.to_thread(self._watch.look, self._status.processes)

    async def _minutes(self) -> None:
        told_s, every_s = 0.0, min(60.0, self._seconds / 10)
        while not self._over:
            await asyncio.sleep(min(every_s, max(0.0, self._seconds - self._at_s)))
            await self._count_rows()
            if self._at_s >= told_s + 59.0:
                told_s = self._at_s
                self._say(f"{self._at_s / 60:5.1f} min: {self._line()}")

    async def _count_rows(self) -> None:
        broker = self._watched.broker
        stores = [broker.data_dir / "shards" / str(shard) for shard in range(N_SHARDS)]
        await asyncio.to_thread(self._watch.count_rows, stores, broker.data_dir)

    # ------------------------------------------------------------------- checks

    def _require_right(self) -> None:
        ledger = self._ledger
        if ledger.wrong:
            raise GateFailed(f"at {self._at_s:.1f} s, {ledger.wrong_count} faults: {summary(ledger.wrong)}")
        if broken := self._crowd.broken():
            raise GateFailed(f"at {self._at_s:.1f} s: {broken[0]}")
        require_sessions_kept(self._crowd.clients)

    def _require_no_stall(self) -> None:
        now = time.monotonic()
        waiting = [
            Waiting(str(reader), reader.arrived, now - since_ns / 1e9, self._crowd.online_s(reader.session))
            for reader, since_ns in self._ledger.lagging().items()
        ]
        for publisher in self._crowd.publishers:
            client = publisher.client
            if client.unacknowledged:
                online_s = self._crowd.online_s(client.client_id)
                waiting.append(Waiting(client.client_id, publisher.newest_acknowledged(), LAG_S * 2, online_s))
        self._stalls.look(now, waiting)

    # ------------------------------------------------------------------- the end

    async def _end(self) -> None:
        """No more kills: everything comes back, everything arrives."""
        deadline = time.monotonic() + BACK_S
        while not await self._new_status():
            if time.monotonic() > deadline:
                raise GateFailed(f"not ready {BACK_S:.0f} s after the last kill")
            await asyncio.sleep(0.5)
        await self._crowd.end(SETTLE_S)
        deadline = time.monotonic() + SETTLE_S
        while lagging := self._ledger.lagging():
            self._require_right()
            if time.monotonic() > deadline:
                raise GateFailed(
                    f"{SETTLE_S:.0f} s after the last publish {len(lagging)} sessions miss something, first {next(iter(lagging))}"
                )
            await asyncio.sleep(0.2)
        self._require_right()
        await self._roles_back(await self._watched.status())
        await self._nothing_under_way()
        if bad := bad_events(self._watched.broker.data_dir / "logs"):
            raise GateFailed(f"in the logs: {', '.join(f'{event} {count} times' for event, count in sorted(bad.items()))}")
        _, grown = judge(self._watch, self._seconds)
        if grown:
            raise GateFailed(f"not flat: {'; '.join(grown)}")

    async def _nothing_under_way(self) -> None:
        """Everything is acknowledged: no row of a home says any more that something is on its way."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            await self._count_rows()
            left = {kind: count for kind, count in self._watch.rows[-1].counts.items() if kind in UNDER_WAY}
            if not left:
                return
            if time.monotonic() > deadline:
                raise GateFailed(f"{SETTLE_S:.0f} s after the last acknowledgement there are home rows of what is under way: {left}")
            await asyncio.sleep(2.0)

    async def _roles_back(self, status: Status) -> None:
        found = Counter(each.role for each in status.processes if each.role in ROLES and alive(each.pid))
        if found != self._roles:
            raise GateFailed(f"at the end status lists {dict(found)} alive, at the start it was {dict(self._roles)}")

    # ------------------------------------------------------------------- words

    def _line(self) -> str:
        ledger, rows = self._ledger, self._watch.rows[-1]
        newest = self._watch.newest
        return (
            f"{self._killed.total()} kills, {ledger.acked} acknowledged, {ledger.arrived} delivered, {ledger.repeated} repeats at QoS 1, "
            f"longest wait {self._stalls.longest_s:.1f} s, {sum(each.pss_mb for each in newest):.0f} MB in {len(newest)} processes, "
            f"{sum(each.descriptors for each in newest)} descriptors, {sum(rows.counts.values())} home rows of "
            f"{rows.bytes / 1000:.0f} kB, {rows.disk_bytes / MB:.0f} MB on disk"
        )

    def _figures(self) -> str:
        figures, _ = judge(self._watch, self._seconds)
        killed = ", ".join(f"{role} {count}" for role, count in sorted(self._killed.items()))
        return (
            f"{self._seconds / 60:.0f} min, {self._killed.total()} kills ({killed}): {self._ledger.acked} messages acknowledged, "
            f"{self._ledger.arrived} delivered, none missing, QoS 2 once, in order, {self._ledger.repeated} repeats at QoS 1; longest wait "
            f"{self._stalls.longest_s:.1f} s ({self._stalls.longest_story}); second fifth -> last fifth: {'; '.join(figures)}"
        )


async def soak(seconds: float, seed: int, say: Say) -> str:
    # Clients write into sockets whose other end was killed; asyncio has a line to say about each.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    async with running(settings(N_SHARDS, **SETTINGS)) as watched:
        return await Soak(watched, seconds, seed, say).run()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.soak", description="Load, kills and audits for so long.")
    parser.add_argument("duration", help="90s, 20m, 2h")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    try:
        figure = asyncio.run(soak(seconds_of(chosen.duration), chosen.seed, lambda line: print(line, flush=True)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        print(f"FAIL soak {chosen.duration}, seed {chosen.seed}: {one_line(error)}", flush=True)
        return 1
    print(f"PASS soak {chosen.duration}, seed {chosen.seed}: {figure}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
