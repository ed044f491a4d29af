"""Who answers for identities, in place of actors.auth: a name and a word are wanted, and the word of everybody is his name.

What a client shows is its user name and password, or, where it names an authentication method, both of them as the data of that.  An
answer takes a while; one that was given before may come once more, as over a link that broke when nobody knew whether it had arrived.
"""

from __future__ import annotations

from collections.abc import Callable

from access.identity import Identity
from access.login import Login
from gateway.events import Authenticate, Authenticated, AuthRefused
from mqtt.reason import ReasonCode
from tests.sim.process import Process
from tests.sim.world import MS

ASKED_US = (0, 80 * MS)
"""Until it is known who a client is."""
SAID_AGAIN = 0.5
"""How often, when somebody is asked about again, what was said before comes once more and first."""

Verdict = Authenticated | AuthRefused


def shown(user: str, word: str) -> bytes:
    """Authentication data."""
    return f"{user} {word}".encode()


class Desk:
    def __init__(self, process: Process, tell: Callable[[Verdict], None]) -> None:
        self._process = process
        self._world = process.world
        self._tell = tell
        self._said: dict[int, Verdict] = {}
        """The newest verdict about each connection."""

    def ask(self, asked: Authenticate) -> None:
        verdict = _verdict(asked)
        said = self._said.get(asked.socket)
        wait_us = self._world.between(*ASKED_US)
        if said is not None and self._world.happens(SAID_AGAIN):
            self._process.after(self._world.between(0, wait_us), self._tell, said)
        self._said[asked.socket] = verdict
        self._process.after(wait_us, self._tell, verdict)

    def forget(self, socket: int) -> None:
        """What is on its way comes all the same, and means nothing."""
        self._said.pop(socket, None)


def _verdict(asked: Authenticate) -> Verdict:
    user, word = _names(asked.login)
    if user and word == user.encode():
        return Authenticated(asked.socket, asked.attempt, Identity(user, "scram" if asked.login.method else "password"))
    return AuthRefused(asked.socket, asked.attempt, ReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong")


def _names(login: Login) -> tuple[str, bytes]:
    if login.method is not None:
        user, _, word = login.data.partition(b" ")
        return user.decode(), word
    assert login.user is not None
    return login.user, login.password or b""
