"""A broker that gives messages when a test says so, by our own codec, and keeps every word that it is answered."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.inward import Came
from mqtt.packets import (
    Ack,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    Properties,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqtt.reason import ReasonCode
from tests.bridge.brokers import HoldingBroker

Words = list[tuple[str, list[int]]]


class GivingBroker(HoldingBroker):
    """granted: the code of every SUBACK.  present: whether it has a session of whoever comes."""

    def __init__(
        self, said: Properties | None = None, code: ReasonCode = ReasonCode.SUCCESS, *, granted: int = 2, present: bool = False
    ) -> None:
        super().__init__(said, code)
        self.granted, self.present = granted, present
        self.resumed: list[Item] = []
        """What it sends right behind a CONNACK."""
        self.words: Words = []
        self.subscribed: list[Subscribe] = []
        self.unsubscribed: list[Unsubscribe] = []
        self.pings = 0

    def give(self, *items: Item) -> None:
        for item in items:
            self._send(item)

    async def heard(self, words: Words) -> None:
        """Until it was answered just this."""
        while self.words != words:
            await self.hears()

    async def hears(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _take(self, item: Item) -> None:
        match item:
            case Connect():
                self.connects.append(item)
                there = self.present and not item.clean_start and not self._code
                self._send(Connack(there, self._code, self._said if item.version == 5 else Properties()))
                self.give(*self.resumed)
            case AckRun():
                self.words.append((item.kind.name, item.packet_ids))
            case Ack():
                self.words.append((item.kind.name, [item.packet_id]))
            case Subscribe():
                self.subscribed.append(item)
                self._send(Suback(item.packet_id, (ReasonCode(self.granted),)))
            case Unsubscribe():
                self.unsubscribed.append(item)
                self._send(Unsuback(item.packet_id, (ReasonCode.SUCCESS,)))
            case Pingreq():
                self.pings += 1
                if self.answers_pings:
                    self._send(Pingresp())
            case Disconnect():
                self.disconnected = True
            case _:
                raise AssertionError(item)


class Listener:
    """What a source tells its owner."""

    def __init__(self) -> None:
        self.came: list[Came] = []
        self.released_ids: list[int] = []
        self.is_subscribed = False

    async def room(self) -> None:
        """There always is."""

    def arrived(self, came: Sequence[Came]) -> None:
        self.came += came

    def released(self, packet_ids: Sequence[int]) -> None:
        self.released_ids += packet_ids

    def subscribed(self) -> None:
        self.is_subscribed = True
