"""Lives on a real broker with two gateways, many at once, each with its client id and topics.

The gateway that some lives want killed is killed once, by SIGKILL, when all of them are ready; they have the broker to
themselves then.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace

from tests.broker.running import RunningBroker
from tests.lives.judge import faults
from tests.lives.player import Player
from tests.lives.stage import Stage
from tests.lives.table import Ending, Kind, Life, Stranger

PREFIXES = ("lives", "killed")
"""Of the stage whose gateways live, and of the other one."""
TURNS = 3
"""So many times the same lives may be lived, each time by other clients."""
SETTINGS = {
    "gateway.count": "2",
    "zones.memory.client_id_prefixes": json.dumps([f"{prefix}{turn}-{Kind.MEMORY.value}-" for prefix in PREFIXES for turn in range(TURNS)]),
    "zones.memory.durable_sessions.enable": "false",
}
"""What the broker is to be started with."""
AT_ONCE = 50
BEGIN_EVERY_S = 0.03
"""Lives begin one after the other: the moment of a crowd is not what is tested here."""
_DIAL_WITHIN_S = 5.0


class Bell:
    def __init__(self) -> None:
        self._rang = asyncio.Event()

    def ring(self) -> None:
        self._rang.set()

    async def until(self, done: Callable[[], bool], within_s: float) -> bool:
        deadline_s = time.monotonic() + within_s
        while not done():
            self._rang.clear()
            try:
                await asyncio.wait_for(self._rang.wait(), max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                return done()
        return True


class Socket(asyncio.Protocol):
    def __init__(self, heard: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._heard = heard
        self._lost = lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class RealPort:
    settle_s = 1.0

    def __init__(self, ports: list[int], kill: Callable[[int], None], wait_for_kill: int) -> None:
        """ports: of each gateway.  kill: SIGKILL to one of them."""
        self._ports = ports
        self._kill = kill
        self._left_to_wait = wait_for_kill
        self._killed = asyncio.Event()
        self._killed_s = 0.0

    @property
    def now_s(self) -> float:
        return time.monotonic()

    def bell(self) -> Bell:
        return Bell()

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def dial(self, gateway: int, heard: Callable[[bytes], None], lost: Callable[[], None]) -> Socket | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_DIAL_WITHIN_S):
                _, socket = await loop.create_connection(lambda: Socket(heard, lost), "127.0.0.1", self._ports[gateway])
        except (OSError, TimeoutError):
            return None
        return socket

    async def killed(self, gateway: int) -> float:
        self._left_to_wait -= 1
        if self._left_to_wait == 0:
            self._kill(gateway)
            self._killed_s = self.now_s
            self._killed.set()
        await self._killed.wait()
        return self._killed_s

    def gave_up(self) -> None:
        """A life that was expected at the kill will not come to it."""
        self._left_to_wait -= 1
        if self._left_to_wait == 0:
            self._kill(0)
            self._killed_s = self.now_s
            self._killed.set()


async def live(broker: RunningBroker, lives: list[Life], turn: int = 0) -> dict[Life, list[str]]:
    """What was wrong with each life that was not as it should be.  Strangers do not come here: nobody has a name."""
    lives = [replace(life, stranger=Stranger.NOBODY, stranger_version=5, stranger_clean=True) for life in lives]
    found: dict[Life, list[str]] = {}
    for killed, prefix in enumerate(PREFIXES):
        chosen = [life for life in lives if (life.ending is Ending.KILLED) is bool(killed)]
        if chosen:
            found.update(await _together(broker, chosen, f"{prefix}{turn}"))
    return found


async def _together(broker: RunningBroker, lives: list[Life], prefix: str) -> dict[Life, list[str]]:
    status = await asyncio.to_thread(broker.ready_status)
    pids = {each.name: each.pid for each in status.processes if each.role == "gateway"}
    names = sorted(pids)
    killed = sum(1 for life in lives if life.ending is Ending.KILLED)
    port = RealPort([status.own_port(name) for name in names], lambda gateway: broker.kill(pids[names[gateway]], wait=False), killed)
    stage = Stage(port, prefix)
    await stage.open()
    players = [Player(life, number, port, stage) for number, life in enumerate(lives)]
    room = asyncio.Semaphore(max(AT_ONCE, killed))

    async def one(player: Player) -> None:
        async with room:
            await player.play()
        if killed and player.seen.stuck and not player.seen.ended_to_s:
            port.gave_up()

    async with asyncio.TaskGroup() as group:
        for player in players:
            group.create_task(one(player))
            await asyncio.sleep(BEGIN_EVERY_S)
    stage.check()
    retained = await stage.retained()
    await stage.close()
    found = {player.life: faults(player, stage, retained) for player in players}
    return {life: what for life, what in found.items() if what}
