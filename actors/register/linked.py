"""A register asked over a link: the host has it, and everybody else a client of the same port.

One frame for each question and one for its answer, msgpack arrays with a number that the asker gives.  A link that is lost takes the
answers with it: a read raises RegisterAway, a change is UNKNOWN, and nothing is asked again here, since the caller has to read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgpack

from actors.endpoints import Endpoint
from actors.links import Link, LinkClient
from actors.wire import Wire
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import Held, Register, RegisterMistake, check_change

READ, CAS, LIST = 1, 2, 3
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
ASKED_MAX = 256
"""Questions of one client that wait for their answers; more are refused as RegisterAway or UNKNOWN."""


class RegisterHost:
    """Owns the links that ask the register of this process.  To be the owner of a LinkServer."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}

    def link_up(self, link: Link) -> None:
        self._tasks[link.number] = set()

    def link_frame(self, link: Link, data: bytes) -> None:
        tasks = self._tasks[link.number]
        try:
            number, kind, *rest = msgpack.unpackb(data)
            answer = self._answer(kind, rest)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            link.close(f"a question to the register that is none: {error}")
            return
        if len(tasks) >= ASKED_MAX:
            link.close(f"more than {ASKED_MAX} questions to the register at a time")
            return
        task = asyncio.get_running_loop().create_task(self._tell(link, number, answer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def link_down(self, link: Link) -> None:
        """What is asked for is done: nobody can take a change back by hanging up."""
        self._tasks.pop(link.number, None)

    def _answer(self, kind: Any, rest: list[Any]) -> Callable[[], Any]:
        match kind, rest:
            case 1, [str(key)]:
                return lambda: self._read(key)
            case 2, [str(key), int(version), bytes(new)]:
                return lambda: self._cas(key, version, new)
            case 3, [str(prefix)]:
                return lambda: self._list(prefix)
        raise ValueError(f"kind {kind!r} with {len(rest)} fields")

    async def _read(self, key: str) -> Any:
        held = await self._register.read(key)
        return None if held is None else [held.value, held.version]

    async def _cas(self, key: str, version: int, new: bytes) -> Any:
        return (await self._register.cas(key, version, new)).value

    async def _list(self, prefix: str) -> Any:
        return [[key, held.value, held.version] for key, held in (await self._register.list(prefix)).items()]

    async def _tell(self, link: Link, number: Any, answer: Callable[[], Any]) -> None:
        try:
            row = [number, True, await answer()]
        except RegisterAway as error:
            row = [number, False, [isinstance(error, RegisterMistake), str(error)]]
        link.send(bytes(msgpack.packb(row)))


class LinkedRegister:
    """The register of another process.  The port of shards.replication.register."""

    def __init__(self, where: Callable[[], Endpoint | None], wire: Wire, name: str, within_s: float) -> None:
        """within_s: for each answer."""
        self._within_s = within_s
        self._client = LinkClient(where, self, wire, "register", name)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = 0
        self._up = asyncio.Event()

    def start(self) -> None:
        self._client.start()

    async def read(self, key: str) -> Held | None:
        held = await self._ask(READ, key)
        return None if held is None else Held(held[0], held[1])

    async def list(self, prefix: str) -> dict[str, Held]:
        return {key: Held(value, version) for key, value, version in await self._ask(LIST, prefix)}

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        check_change(key, version, new)
        try:
            return _OUTCOMES[await self._ask(CAS, key, version, new)]
        except RegisterAway:
            return Outcome.UNKNOWN

    async def close(self) -> None:
        await self._client.stop()
        self._lost("this process stops")

    # ---- the link

    def link_up(self, link: Link) -> None:
        self._up.set()

    def link_frame(self, link: Link, data: bytes) -> None:
        try:
            number, answered, answer = msgpack.unpackb(data)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            link.close(f"an answer of the register that is none: {error}")
            return
        future = self._asked.pop(number, None)
        if future is None or future.done():
            return
        if answered:
            future.set_result(answer)
        else:
            mistake, said = answer
            future.set_exception((RegisterMistake if mistake else RegisterAway)(said))

    def link_down(self, link: Link) -> None:
        self._up.clear()
        self._lost("the link to it was lost")

    def _lost(self, why: str) -> None:
        for future in self._asked.values():
            if not future.done():
                future.set_exception(RegisterAway(f"the register did not answer: {why}"))
        self._asked.clear()

    async def _ask(self, kind: int, *fields: object) -> Any:
        if len(self._asked) >= ASKED_MAX:
            raise RegisterAway(f"the register has not answered {ASKED_MAX} questions yet")
        self._numbers += 1
        number = self._numbers
        try:
            async with asyncio.timeout(self._within_s):
                await self._up.wait()
                self._asked[number] = future = asyncio.get_running_loop().create_future()
                self._client.send(bytes(msgpack.packb([number, kind, *fields])))
                return await future
        except TimeoutError:
            # Who does not know the secret, or shows no good certificate, never hears an answer: that is what a person has to mend.
            why = f": {self._client.refused}" if self._client.refused else f" within {self._within_s:g} s"
            raise RegisterAway(f"the register did not answer{why}") from None
        finally:
            self._asked.pop(number, None)
