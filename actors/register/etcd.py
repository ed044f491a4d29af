"""The register in etcd: three members or more, so that losing one stops nothing.

A read is a linearizable range, a change a transaction that compares the revision of the key.  Endpoints are asked in turn, beginning with
the one that answered last.  A change goes to another endpoint only when the one before has certainly not made it; otherwise it is UNKNOWN,
since a second try could meet its own first one and call that a conflict.

Always holds: no lease, no lock and no clock of etcd is used; only members of one cluster are believed.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from actors.register.etcd_http import Answer, EtcdHttp, Failed, NotExecuted, NotLoggedIn, Tls, Unsure
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import LISTED_MAX, NO_VALUE, Held, RegisterMistake, check_change

RANGE, TXN, LOGIN = "/v3/kv/range", "/v3/kv/txn", "/v3/auth/authenticate"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str = field(repr=False)


class EtcdRegister:
    """The port of shards.replication.register.  Made on any thread, used on one loop."""

    def __init__(self, endpoints: Sequence[str], tls: Tls | None = None, user: User | None = None, timeout_s: float = 2.0) -> None:
        """endpoints: http:// or https:// with host and port.  timeout_s: for one request to one of them.  Raises RegisterMistake for TLS
        files that cannot be used."""
        assert endpoints, "no endpoints"
        try:
            self._http = EtcdHttp(tls, timeout_s)
        except Failed as error:
            raise RegisterMistake(str(error)) from None
        self._endpoints = [endpoint.rstrip("/") for endpoint in endpoints]
        self._user = user
        self._token = ""
        self._login = asyncio.Lock()
        self._checked: set[str] = set()
        """Endpoints whose version and cluster were looked at."""
        self._cluster = ""
        self.trouble = ""
        """What was wrong with the endpoints that were asked last; empty: the first one answered."""

    async def read(self, key: str) -> Held | None:
        answer = await self._ask_for(RANGE, {"key": _encoded(key)})
        return next(iter(_held(answer.body).values()), None)

    async def list(self, prefix: str) -> dict[str, Held]:
        assert prefix, "all keys of an etcd that others may use too"
        end = prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1])
        wanted = {"key": _encoded(prefix), "range_end": b64encode(end).decode(), "limit": LISTED_MAX + 1, "sort_order": "ASCEND"}
        answer = await self._ask_for(RANGE, wanted)
        found = _held(answer.body)
        if len(found) > LISTED_MAX:
            raise RegisterMistake(
                f"etcd has more than {LISTED_MAX} keys that begin with {prefix!r}: is register.prefix that of another program?"
            )
        return found

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        check_change(key, version, new)
        put = {"key": _encoded(key), "value": b64encode(new).decode()}
        compare = {"key": put["key"], "target": "MOD", "result": "EQUAL", "mod_revision": str(version)}
        try:
            answer = await self._ask(TXN, {"compare": [compare], "success": [{"request_put": put}]}, once=True)
        except Failed as error:
            self._trouble(str(error))
            return Outcome.UNKNOWN
        return Outcome.DONE if answer.body.get("succeeded") is True else Outcome.CONFLICT

    async def close(self) -> None:
        await self._http.close()

    # ---- within

    async def _ask_for(self, path: str, body: dict[str, object]) -> Answer:
        try:
            return await self._ask(path, body, once=False)
        except Failed as error:
            self._trouble(str(error))
            raise (RegisterMistake if error.mistake else RegisterAway)(f"the register does not answer: {error}") from None

    async def _ask(self, path: str, body: dict[str, object], *, once: bool) -> Answer:
        """once: it must not be done twice.  Raises Failed, with what is wrong with each endpoint."""
        failed: list[Failed] = []
        for endpoint in list(self._endpoints):
            try:
                answer = await self._ask_one(endpoint, path, body)
            except Failed as error:
                failed.append(error)
                # What is there when it answers again is looked at again.  The next request begins with another.
                self._checked.discard(endpoint)
                self._endpoints.append(self._endpoints.pop(self._endpoints.index(endpoint)))
                if once and isinstance(error, Unsure):
                    break
                continue
            self._trouble("; ".join(map(str, failed)))
            return answer
        raise Failed("; ".join(map(str, failed)), mistake=all(error.mistake for error in failed))

    async def _ask_one(self, endpoint: str, path: str, body: dict[str, object]) -> Answer:
        if endpoint not in self._checked:
            await self._check(endpoint)
        token = await self._logged_in(endpoint, "")
        try:
            answer = await self._http.ask(endpoint, path, body, token)
        except NotLoggedIn:
            token = await self._logged_in(endpoint, token)
            answer = await self._http.ask(endpoint, path, body, token)
        return answer

    async def _check(self, endpoint: str) -> None:
        """Before anything is changed there."""
        try:
            cluster = await self._http.cluster(endpoint)
        except Unsure as error:
            # Only the question for its version was sent.
            raise NotExecuted(str(error), mistake=error.mistake) from None
        self._cluster = self._cluster or cluster
        if cluster != self._cluster:
            raise NotExecuted(f"{endpoint}: it is of another etcd cluster than the one that answered before", mistake=True)
        self._checked.add(endpoint)

    async def _logged_in(self, endpoint: str, refused: str) -> str:
        """A token, another one than the one that was refused."""
        if self._user is None:
            return ""
        async with self._login:
            if not self._token or self._token == refused:
                self._token = ""
                try:
                    answer = await self._http.ask(endpoint, LOGIN, {"name": self._user.name, "password": self._user.password})
                except Unsure as error:
                    raise NotExecuted(str(error), mistake=error.mistake) from None
                self._token = str(answer.body.get("token", ""))
            return self._token

    def _trouble(self, what: str) -> None:
        if what != self.trouble:
            self.trouble = what
            if what:
                log.warning("register.trouble", cause=what)
            else:
                log.info("register.answers", endpoint=self._endpoints[0])


def _encoded(key: str) -> str:
    return b64encode(key.encode()).decode()


def _held(body: dict[str, Any]) -> dict[str, Held]:
    """A value that is empty, and a number that is 0, are left out of the JSON."""
    return {
        b64decode(row["key"]).decode(): Held(b64decode(row.get("value", "")), int(row.get("mod_revision", NO_VALUE)))
        for row in body.get("kvs", ())
    }
