"""What may happen to a broker whose wall clock is set, and what may not: nothing that waits for its time may go early.

``Stepped`` is a real broker whose processes see moved clocks (tests.clockshim). ``plant`` leaves things in it that have a time:
a durable session with unread messages, one of them with a Message Expiry, a retained message with one, a delayed will.
``kept`` says whether all of them are there, and whether what is left of their time is what has really passed.
``goes_on`` says that time has not stopped either. Each raises ``ClockFault`` with a sentence.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.actors.hand import Hand
from tests.broker import wire
from tests.broker.running import Options, RunningBroker
from tests.clockshim.control import Clocks

HOUR_S = 3_600
TEN_YEARS_S = 10 * 365 * 24 * HOUR_S
LONG_S = 7_200
"""What is planted lives so long: longer than any check, and than the hour that a reboot with a clock an hour ahead is believed."""
SHORT_S = 2
COMES_S = 60.0
"""Whoever waits longer for something that has to come, or to be said, gives up."""
OF_DROPS_S = 20.0
"""After its retention, a message may be there by this: a generation's length, a look a second, and one that is busy with others."""
ROUNDING_S = 3.0
"""Message Expiry is whole seconds, rounded up at each hop, and an age may be as old as one turn."""
MARK_S = 10.0
"""After a kill -9 and a clock that is not believed, age goes on from its last mark, which is so old at most."""
SETTINGS = {
    "ray.dashboard": "false",
    "durable_storage.messages.n_shards": "1",
    "durable_storage.messages.generation_length": "2s",
}
_EXPIRY = 0x02


class ClockFault(Exception):
    """The broker went by a clock that it must not go by, or by none."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ClockFault(sentence)


# ------------------------------------------------------------------ a client that knows of times


@dataclass(frozen=True, slots=True)
class Came:
    """A PUBLISH, acknowledged. left_s: its Message Expiry Interval."""

    payload: str
    left_s: int | None
    packet_id: int


class Dial(Hand):
    """One connection, of MQTT 5."""

    @classmethod
    async def dial(
        cls, port: int, client: str, *, expiry_s: int = 0, clean: bool = False, receive_max: int = 100, will: tuple[str, int] | None = None
    ) -> Self:
        """will: topic and delay in seconds; at QoS 1."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        dial = cls(5, reader, writer)
        properties = struct.pack(">BIBH", wire.SESSION_EXPIRY, expiry_s, wire.RECEIVE_MAXIMUM, receive_max)
        body = wire.text("MQTT") + bytes([5, (2 if clean else 0) | (0x0C if will else 0)]) + struct.pack(">H", 0)
        body += wire.varint(len(properties)) + properties + wire.text(client)
        if will is not None:
            topic, delay_s = will
            body += bytes([5, 0x18]) + struct.pack(">I", delay_s) + wire.text(topic) + wire.text("will")
        dial.send(wire.packet(0x10, body))
        connack = wire.read_connack(5, (await dial.next(wire.CONNACK)).body)
        require(connack.code == 0, f"CONNACK {connack.code:#04x} for {client}")
        dial.present = connack.session_present
        return dial

    async def store(self, topic: str, payload: str, *, expiry_s: int | None = None, retain: bool = False) -> None:
        """Published at QoS 1, and acknowledged."""
        self._last_id += 1
        properties = b"" if expiry_s is None else struct.pack(">BI", _EXPIRY, expiry_s)
        body = wire.text(topic) + struct.pack(">H", self._last_id) + wire.varint(len(properties)) + properties + payload.encode()
        self.send(wire.packet(0x32 | retain, body))
        require(await self.answer(wire.PUBACK, self._last_id) < 0x80, f"the broker refuses a message to {topic}")

    async def came(self, *, acknowledge: bool = True) -> Came:
        packet = await self.next(wire.PUBLISH)
        read = wire.read_publish(5, packet.flags, packet.body)
        if acknowledge and read.qos == 1:
            self.acknowledge(wire.PUBACK, read.packet_id)
        left_s = _left_s(packet.body, 2 + len(read.topic.encode()) + (2 if read.qos else 0))
        return Came(read.payload.decode(), left_s, read.packet_id)

    async def all_that_comes(self, *wanted: str) -> list[Came]:
        """Until these have come, and nothing else for half a second."""
        found: list[Came] = []
        try:
            while True:
                missing = set(wanted) - {one.payload for one in found}
                async with asyncio.timeout(COMES_S if missing else 0.5):
                    found.append(await self.came())
        except TimeoutError:
            return found


def _left_s(body: bytes, at: int) -> int | None:
    """The expiry among the properties that the broker sends; of the others only retained and identifiers can be there."""
    if body[at] == 0:
        return None
    require(body[at] == 5 and body[at + 1] == _EXPIRY, f"unexpected properties {body[at : at + 8].hex()}")
    (left_s,) = struct.unpack_from(">I", body, at + 2)
    return int(left_s)


# ------------------------------------------------------------------ the broker


@dataclass(frozen=True, slots=True)
class Planted:
    """Things that wait for their time, since a moment between at_s and by_s of the monotonic clock; wall_ms is at_s by the wall clock."""

    name: str
    at_s: float
    by_s: float
    wall_ms: int
    lives_s: int


class _Seen(RunningBroker):
    """Every command sees the same clocks as the broker, or it would take the boot for another one."""

    def _run(self, arguments: list[str], deadline_s: float, environment: Mapping[str, str]) -> str:
        return super()._run(arguments, deadline_s, {**self.options.environment, **environment})

    def command(self, *arguments: str) -> str:
        return self._run([*arguments, "--data-dir", str(self.data_dir)], COMES_S, {})


class Stepped:
    """A broker, the clocks it sees, and what was planted in it."""

    def __init__(self, broker: _Seen, clocks: Clocks) -> None:
        self.broker = broker
        self.clocks = clocks

    @property
    def port(self) -> int:
        return self.broker.port

    # -------------------------------------------------------------- what is done to it

    async def restart(
        self, *, step_s: float = 0.0, reboot: bool = False, gently: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        """Every process ends, the clocks are moved meanwhile, and the broker starts again, with other settings if there are any."""
        await asyncio.to_thread(self.broker.down if gently else self.broker.kill_all)
        if settings is not None:
            options = self.broker.options
            self.broker.options = Options({**options.settings, **settings}, options.config, options.environment)
        if reboot:
            self.clocks.reboot(step_s)
        else:
            self.clocks.step(step_s)
        await asyncio.to_thread(self.broker.up)

    async def accept(self) -> None:
        await asyncio.to_thread(self.broker.command, "storage", "accept-clock")

    # -------------------------------------------------------------- what it says

    async def info(self) -> dict[str, object]:
        """Of its only shard."""
        found = json.loads(await asyncio.to_thread(self.broker.command, "storage", "info", "--json"))
        (shard,) = found
        assert isinstance(shard, dict)
        return shard

    async def suspended(self) -> tuple[bool, bool]:
        """As `storage info` says it, and as `status` does."""
        info, status = await asyncio.gather(self.info(), asyncio.to_thread(self.broker.command, "status", "--json"))
        return bool(info["age_suspended"]), any(alarm["kind"] == "clock" for alarm in json.loads(status)["alarms"])

    async def until_suspended_is(self, wanted: bool) -> None:
        """When the shard has written its mark."""
        deadline = time.monotonic() + COMES_S
        while (found := await self.suspended()) != (wanted, wanted):
            require(time.monotonic() < deadline, f"expiry is{'' if wanted else ' not'} suspended; `storage info` and `status` say {found}")

    def logged(self, event: str) -> int:
        """How often the broker has logged it."""
        return sum(path.read_text(errors="replace").count(event) for path in (self.broker.data_dir / "logs").rglob("*") if path.is_file())

    async def alarms(self) -> tuple[int, int, int]:
        """Steps that `storage info` knows, and lines in the log about steps and about jumps over a reboot."""
        steps = (await self.info())["clock_steps"]
        assert isinstance(steps, int)
        return steps, self.logged("shard.clock_stepped"), self.logged("shard.clock_jumped")

    async def until_alarms_are(self, steps: int, stepped: int, jumped: int) -> None:
        deadline = time.monotonic() + COMES_S
        while (found := await self.alarms()) != (steps, stepped, jumped):
            require(time.monotonic() < deadline, f"alarms are {found}, ({steps}, {stepped}, {jumped}) are right")

    async def until_logged(self, event: str, more_than: int) -> None:
        deadline = time.monotonic() + COMES_S
        while self.logged(event) <= more_than:
            require(time.monotonic() < deadline, f"nothing is logged as {event}")
            await asyncio.sleep(0.1)

    async def dump(self, topic_filter: str) -> dict[str, int]:
        """Payload: when it was published, as people are told."""
        lines = (await asyncio.to_thread(self.broker.command, "storage", "dump", topic_filter, "--json")).splitlines()
        return {row["topic"]: row["published_at_ms"] for row in map(json.loads, lines)}

    # -------------------------------------------------------------- what has its time

    async def plant(self, name: str, lives_s: int = LONG_S) -> Planted:
        away = await Dial.dial(self.port, f"{name}-away", expiry_s=lives_s)
        require(not away.present, f"{name}: there is a session already")
        await away.subscribe(f"{name}/#", 1)
        willing = await Dial.dial(self.port, f"{name}-willing", expiry_s=2 * lives_s, will=(f"{name}/will", lives_s))
        await away.close()
        at_s, wall_ms = time.monotonic(), self.clocks.wall_ms()
        publisher = await Dial.dial(self.port, f"{name}-publisher", clean=True)
        await publisher.store(f"{name}/plain", "plain")
        await publisher.store(f"{name}/timed", "timed", expiry_s=lives_s)
        await publisher.store(f"kept/{name}", "retained", expiry_s=lives_s, retain=True)
        await publisher.close()
        willing.drop()
        return Planted(name, at_s, time.monotonic(), wall_ms, lives_s)

    async def kept(self, planted: Planted, *, off_s: float = 0.0, unsure_s: float = 0.0) -> None:
        """All of it is there. off_s: the time that the machine was off, and that counts; unsure_s: time that may not count."""
        name = planted.name
        asked_s = time.monotonic()
        away = await Dial.dial(self.port, f"{name}-away", expiry_s=planted.lives_s)
        require(away.present, f"{name}: the session has ended early")
        came = {one.payload: one.left_s for one in await away.all_that_comes("plain", "timed")}
        require("plain" in came, f"{name}: a message has gone early; there came {sorted(came)}")
        require("timed" in came, f"{name}: a message with a Message Expiry has gone early; there came {sorted(came)}")
        require("will" not in came, f"{name}: the will was published early")
        self._left(planted, "the message", came["timed"], asked_s, off_s, unsure_s)
        await away.close()
        other = await Dial.dial(self.port, f"{name}-other", clean=True)
        await other.subscribe(f"kept/{name}", 1)
        retained = await other.all_that_comes("retained")
        require(bool(retained), f"{name}: the retained message has gone early")
        self._left(planted, "the retained message", retained[0].left_s, asked_s, off_s, unsure_s)
        await other.close()
        self._shown(planted, await self.dump(f"{name}/#"))

    @staticmethod
    def _shown(planted: Planted, dumped: Mapping[str, int]) -> None:
        """People are told the wall clock of the moment in which it was published."""
        for topic in (f"{planted.name}/plain", f"{planted.name}/timed"):
            require(topic in dumped, f"{topic} was dropped early")
            apart_ms = dumped[topic] - planted.wall_ms
            took_ms = (planted.by_s - planted.at_s) * 1_000
            require(-1500 < apart_ms < 5000 + took_ms, f"{topic} is shown as published {apart_ms} ms after it was published")

    def _left(self, planted: Planted, what: str, left_s: int | None, asked_s: float, off_s: float, unsure_s: float) -> None:
        """It was sent between asked_s and now."""
        upper = planted.lives_s - (asked_s - planted.by_s + off_s) + unsure_s + ROUNDING_S
        lower = planted.lives_s - (time.monotonic() - planted.at_s + off_s) - ROUNDING_S
        require(
            left_s is not None and lower <= left_s <= upper,
            f"{planted.name}: {what} of {planted.lives_s} s has {left_s} s left, {lower:.0f} to {upper:.0f} are right",
        )

    async def is_over(self, planted: Planted) -> None:
        """Its time passed while the machine was off: neither the session nor the retained message is there."""
        away = await Dial.dial(self.port, f"{planted.name}-away", expiry_s=planted.lives_s)
        require(not away.present, f"{planted.name}: the session is there after its end")
        await away.close()
        other = await Dial.dial(self.port, f"{planted.name}-other", clean=True)
        await other.subscribe(f"kept/{planted.name}", 1)
        require(not await other.all_that_comes(), f"{planted.name}: the retained message is there after its end")
        await other.close()

    async def is_dropped(self, planted: Planted, retention_s: float, unsure_s: float = 0.0) -> None:
        """Its messages go with their generation: not before their time, and not much later."""
        while f"{planted.name}/plain" in await self.dump(f"{planted.name}/#"):
            passed_s = time.monotonic() - planted.at_s
            latest_s = retention_s + unsure_s + OF_DROPS_S
            require(passed_s < latest_s, f"{planted.name}: messages are there after {passed_s:.0f} s, retention is {retention_s:.0f} s")
            await asyncio.sleep(1)
        passed_s = time.monotonic() - planted.at_s
        require(passed_s > retention_s - 1, f"{planted.name}: messages were dropped after {passed_s:.0f} s of {retention_s:.0f} s")

    async def goes_on(self, name: str) -> None:
        """What is planted now ends at its time: time does not stand still."""
        watch = await self._watch(f"{name}-on")
        planted = await self.plant(f"{name}-on", SHORT_S)
        await self.ended(planted, watch)
        self._shown(planted, await self.dump(f"{planted.name}/#"))

    async def _watch(self, name: str) -> Dial:
        watch = await Dial.dial(self.port, f"{name}-watch", clean=True)
        await watch.subscribe(f"{name}/will", 1)
        return watch

    async def ended(self, planted: Planted, watch: Dial) -> None:
        """Session, message, retained message and will: each is over, or comes within moments. Everybody watches from before."""
        try:
            will = await watch.came()
        except TimeoutError:
            raise ClockFault(f"{planted.name}: the delayed will never comes") from None
        require(will.payload == "will", f"{planted.name}: {will} instead of a will")
        passed_s = time.monotonic() - planted.at_s
        require(passed_s >= planted.lives_s, f"{planted.name}: the will came after {passed_s:.1f} s, {planted.lives_s} s early")
        await watch.close()
        await asyncio.sleep(max(0.0, planted.by_s + planted.lives_s + 1.5 - time.monotonic()))
        other = await Dial.dial(self.port, f"{planted.name}-other", clean=True)
        await other.subscribe(f"kept/{planted.name}", 1)
        require(not await other.all_that_comes(), f"{planted.name}: the retained message does not go")
        await other.close()
        away = await Dial.dial(self.port, f"{planted.name}-away", expiry_s=planted.lives_s)
        require(not away.present, f"{planted.name}: the session does not end")
        await away.close()

    async def waits_until_accepted(self, name: str) -> None:
        """Nothing ends while the clock is not believed, and everything does when it is."""
        first = await self.plant(f"{name}-first", SHORT_S)
        watch = await self._watch(f"{name}-second")
        second = await self.plant(f"{name}-second", SHORT_S)
        await asyncio.sleep(SHORT_S + 2)
        away = await Dial.dial(self.port, f"{first.name}-away", expiry_s=3600)
        require(away.present, f"{name}: a session has ended by a clock that nobody has accepted")
        await away.close()
        await watch.alive()
        before = self.logged("shard.clock_accepted")
        await self.accept()
        await self.until_logged("shard.clock_accepted", before)
        await self.ended(second, watch)
        self._shown(second, await self.dump(f"{second.name}/#"))
        await self.until_suspended_is(False)


class Queue:
    """A message that waits in the memory of a gateway, for a subscriber whose window is full."""

    def __init__(self, name: str, lives_s: int = LONG_S) -> None:
        self._name = name
        self._lives_s = lives_s

    async def fill(self, port: int) -> None:
        self._subscriber = await Dial.dial(port, f"{self._name}-slow", clean=True, receive_max=1)
        await self._subscriber.subscribe(f"{self._name}/#", 1)
        publisher = await Dial.dial(port, f"{self._name}-fast", clean=True)
        self._at_s = time.monotonic()
        for payload in ("first", "second"):
            await publisher.store(f"{self._name}/x", payload, expiry_s=self._lives_s)
        self._by_s = time.monotonic()
        await publisher.close()
        self._first = await self._subscriber.came(acknowledge=False)

    async def drain(self) -> None:
        """The second one comes, with the time that it really has left."""
        asked_s = time.monotonic()
        self._subscriber.acknowledge(wire.PUBACK, self._first.packet_id)
        try:
            second = await self._subscriber.came()
        except TimeoutError:
            raise ClockFault(f"{self._name}: a message that waited in a gateway has gone early") from None
        upper = self._lives_s - (asked_s - self._by_s) + ROUNDING_S
        lower = self._lives_s - (time.monotonic() - self._at_s) - ROUNDING_S
        require(
            second.left_s is not None and lower <= second.left_s <= upper,
            f"{self._name}: a message that waited in a gateway has {second.left_s} s left, {lower:.0f} to {upper:.0f} are right",
        )
        await self._subscriber.close()


@asynccontextmanager
async def stepped(settings: Mapping[str, str] | None = None) -> AsyncIterator[Stepped]:
    """A broker that is up, and that leaves nothing behind."""
    directory = Path(tempfile.mkdtemp(prefix="hf-"))
    try:
        clocks = Clocks(directory / "clocks")
        options = Options(settings={**SETTINGS, **(settings or {})}, environment=clocks.environment())
        broker = _Seen(options, data_dir=directory / "data")
        try:
            await asyncio.to_thread(broker.__enter__)
            yield Stepped(broker, clocks)
        except BaseException as error:
            await asyncio.to_thread(broker.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(broker.__exit__, None, None, None)
    except BaseException as error:
        error.add_note(f"data kept in {directory}")
        raise
    shutil.rmtree(directory, ignore_errors=True)
