"""Answers operators of this site: `holdfast ds ...` and the admin process, over the unix socket of the site process.

A question is `[number, verb, arguments]`, an answer `[number, outcome, value]`, msgpack; outcome: TOLD, REFUSED (one sentence, it cannot be
like that), AWAY (one sentence, nobody knows now).  A change is tried anew, from a fresh look, while others change the same records.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgpack
import structlog

from actors.inquiry.sites import STORAGE, Refused, Sites
from actors.links import Link
from actors.sites.changing import Change, Nonce, declare_lost, forget, join, leave, set_replicas
from actors.sites.forcing import Around, force_leader
from actors.sites.looking import Seen, look
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import Register

ROLE: Final = "admin"
"""Of links that commands and the admin process dial with, to whatever process."""
TOLD, REFUSED, AWAY = 0, 1, 2
TRIES_MAX: Final = 20
"""Looks of one command, while its changes meet those of others."""
ASKED_MAX: Final = 16
"""Commands of one link at a time; with more it is closed."""
FORCE: Final = "force-leader"
"""Of a shard, a site, and a word (actors.sites.forcing)."""
VERBS: Final = ("info", "set-replicas", "join", "leave", "lost", "forget", FORCE, "drain")

log = structlog.get_logger(__name__)


class Office(Protocol):
    """What the desk works with."""

    @property
    def register(self) -> Register | None:
        """None: this site has not taken its place yet."""

    @property
    def replication_factor(self) -> int: ...

    def around(self) -> Around:
        """Which sites are up, this one included, and what their replicas say."""

    def info(self) -> Sites: ...

    def nonce(self) -> str: ...

    def look_soon(self) -> None:
        """Something was changed."""

    def drain(self) -> int:
        """Let others lead what this site leads; how many shards it leads still."""


class Desk:
    """The owner of links of role ROLE."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}

    def link_up(self, link: Link) -> None:
        self._tasks[link.number] = set()

    def link_down(self, link: Link) -> None:
        """What is asked for is done, or is not: asking again says which."""
        self._tasks.pop(link.number, None)

    def link_frame(self, link: Link, data: bytes) -> None:
        tasks = self._tasks[link.number]
        try:
            number, verb, words = msgpack.unpackb(data)
            answer = self._answer(verb, words)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            link.close(f"a question to the site that is none: {error}")
            return
        if len(tasks) >= ASKED_MAX:
            link.close(f"more than {ASKED_MAX} questions to the site at a time")
            return
        task = asyncio.get_running_loop().create_task(_tell(link, number, answer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _answer(self, verb: Any, words: Any) -> Callable[[], Awaitable[Any]]:
        if verb not in VERBS or not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"verb {verb!r}")
        if verb == "info":
            return self._info
        if verb == "drain":
            return self._drain
        if verb != "set-replicas" and len(words) != (3 if verb == FORCE else 1):
            raise ValueError(f"{verb} of {len(words)} sites")
        return lambda: self._change(verb, words)

    async def _info(self) -> dict[str, Any]:
        return dataclasses.asdict(self._office.info())

    async def _drain(self) -> int:
        return self._office.drain()

    async def _change(self, verb: str, words: list[str]) -> bool:
        """Whether anything was to change."""
        office = self._office
        register = office.register
        if register is None:
            raise RegisterAway("this site has not taken its place in the cluster yet; `holdfast status` says why")
        changed = False
        for _ in range(TRIES_MAX):
            changes = decide(verb, words, await look(register), office.around(), office.replication_factor, office.nonce)
            if not changes:
                return changed
            changed = True
            outcomes = [await register.cas(*change) for change in changes]
            if all(outcome is Outcome.DONE for outcome in outcomes):
                break
        else:
            raise RegisterAway("the records of the shards change faster than this can be done; ask again")
        # To force is what somebody has to look at.
        (log.error if verb == FORCE else log.info)("replicas.asked", verb=verb, sites=words, storage=STORAGE, records=len(changes))
        office.look_soon()
        return True


def decide(verb: str, words: Sequence[str], seen: Seen, around: Around, replication_factor: int, nonce: Nonce) -> list[Change]:
    """Raises Refused."""
    match verb:
        case "set-replicas":
            return set_replicas(seen, words, replication_factor, nonce)
        case "join":
            return join(seen, words[0], replication_factor, nonce)
        case "leave":
            return leave(seen, words[0], replication_factor, nonce)
        case "force-leader":
            return force_leader(seen, words[0], words[1], words[2], around, nonce)
        case "lost":
            return declare_lost(seen, words[0], around.up)
        case _:
            assert verb == "forget", verb
            return forget(seen, words[0], around.up)


async def _tell(link: Link, number: Any, answer: Callable[[], Awaitable[Any]]) -> None:
    try:
        row = [number, TOLD, await answer()]
    except Refused as error:
        row = [number, REFUSED, str(error)]
    except RegisterAway as error:
        row = [number, AWAY, str(error)]
    link.send(bytes(msgpack.packb(row)))
