"""Clients that prove once more who they are, on a connection that is there (AUTH of MQTT 5), in worlds where clients have names.

Now and then with a wrong word: then the connection must end, whatever was said of it before, and nothing else may.  A right word is
answered by AUTH, or the connection ends for another reason; it is never refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from access.scram import SCRAM_METHOD
from mqtt.packets import Auth, Properties
from mqtt.reason import ReasonCode
from tests.sim.client import Attempt, Client
from tests.sim.crowd import Crowd
from tests.sim.desk import shown
from tests.sim.rules import Violation
from tests.sim.world import MS, SECOND, World

EVERY_US = 2 * SECOND
WRONG = 0.4
CLOSED_WITHIN_US = 40 * SECOND
"""After a wrong word, where the gateway does not stand still: a wire may be held for some seconds."""


@dataclass(frozen=True, slots=True)
class _Asked:
    attempt: Attempt
    right: bool


class Proving:
    def __init__(self, world: World, crowd: Crowd) -> None:
        self.world = world
        self._crowd = crowd
        self._asked: dict[bytes, _Asked] = {}
        self._clients = [client for client in crowd.clients if client.temper.by_method]
        for client in self._clients:
            client.heard_auth = partial(self._heard, client)
            client.sent_away = partial(self._sent_away, client)

    def start(self) -> None:
        if self._clients:
            self.world.later(int(self.world.rng.expovariate(1.0) * EVERY_US) + MS, self._begin)

    def _begin(self) -> None:
        if self._crowd.resting:
            return
        ready = [client for client in self._clients if client.online and not self._waits(client)]
        if ready:
            self._prove(self.world.rng.choice(ready), not self.world.happens(WRONG))
        self.start()

    def _waits(self, client: Client) -> _Asked | None:
        asked = self._asked.get(client.key)
        return asked if asked is not None and asked.attempt is client.attempt else None

    def _prove(self, client: Client, right: bool) -> None:
        assert client.attempt is not None
        word = client.temper.user if right else "wrong"
        properties = Properties(authentication_method=SCRAM_METHOD, authentication_data=shown(client.temper.user, word))
        self.world.note(client.id, "proves", "who it is" if right else "nothing")
        asked = self._asked[client.key] = _Asked(client.attempt, right)
        client.send(Auth(ReasonCode.RE_AUTHENTICATE, properties))
        if not right:
            self.world.later(CLOSED_WITHIN_US, self._must_be_over, client, asked, self.world.now_us)

    def _heard(self, client: Client, packet: Auth) -> None:
        asked = self._waits(client)
        if asked is None or packet.reason != ReasonCode.SUCCESS:
            raise Violation(f"{client.id} got {packet}, and waits for {asked}")
        if not asked.right:
            raise Violation(f"{client.id} has shown a wrong word on attempt {asked.attempt.serial}, and is let go on")
        del self._asked[client.key]

    def _sent_away(self, client: Client, reason: ReasonCode) -> None:
        asked = self._waits(client)
        if reason == ReasonCode.NOT_AUTHORIZED and (asked is None or asked.right):
            raise Violation(f"{client.id} is sent away as somebody else, and has shown the right word")

    def _must_be_over(self, client: Client, asked: _Asked, since_us: int) -> None:
        attempt = asked.attempt
        if client.attempt is not attempt or attempt.wire is None or not attempt.wire.whole:
            return
        gateway = attempt.wire.accepted.process
        if gateway.alive and not gateway.stopped and gateway.still_us < since_us and attempt.wire.held_until_us < since_us:
            raise Violation(f"{client.id} has shown a wrong word on attempt {attempt.serial}, and is there after {CLOSED_WITHIN_US} us")
