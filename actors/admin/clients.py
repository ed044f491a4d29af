"""Clients and their subscriptions, under the names that EMQX has for them."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from actors.admin.broker import Broker
from actors.admin.errors import ANSWERS, Error, bad_request, missing, no_client, not_found
from actors.admin.shapes import API, LIMIT, ClientId, Cursor, Limit, Part, TopicName, behind_client, gathered, page, page_of
from actors.inquiry import clients as inquiry
from actors.inquiry import sessions, subscriptions
from actors.inquiry.asking import Asking, Page
from actors.inquiry.clients import Client, Kind
from actors.inquiry.facts import when
from actors.inquiry.subscriptions import Subscription
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_name, is_shared, matched_filter, matches
from shards.ids import EXPIRY_NEVER

NOT_THERE: Final[dict[int | str, dict[str, Any]]] = {404: {"model": Error, "description": "There is no such client."}}


class ClientAnswer(BaseModel):
    clientid: str
    username: str | None
    connected: bool
    durable: bool
    session: Kind
    created_at: datetime | None
    connected_at: datetime | None
    disconnected_at: datetime | None
    expiry_interval: int
    expires_at: datetime | None
    proto_ver: int | None
    ip_address: str | None
    port: int | None
    listener: str | None
    keepalive: int | None
    gateway: str | None
    home: int
    subscriptions_cnt: int | None
    inflight_cnt: int | None
    mqueue_len: int | None
    unanswered: int | None
    congested: bool | None


class OneClient(ClientAnswer):
    missing: list[str]


class SubscriptionAnswer(BaseModel):
    clientid: str
    topic: str
    qos: Literal[0, 1, 2]
    nl: Literal[0, 1]
    rap: Literal[0, 1]
    identifier: int | None
    durable: bool
    session: Kind


def shown(one: Client) -> dict[str, Any]:
    address, port = _address(one.peer)
    return {
        "clientid": one.client, "username": one.user, "connected": one.connected,
        "durable": one.session == "durable", "session": one.session, "created_at": _when(one.created_at_ms),
        "connected_at": _when(one.connected_at_ms), "disconnected_at": _when(one.disconnected_at_ms),
        "expiry_interval": EXPIRY_NEVER if one.expiry_s is None else one.expiry_s, "expires_at": _when(one.expires_at_ms),
        "proto_ver": one.protocol, "ip_address": address, "port": port, "listener": one.listener, "keepalive": one.keep_alive_s,
        "gateway": one.gateway, "home": one.home, "subscriptions_cnt": one.subscriptions, "inflight_cnt": one.inflight,
        "mqueue_len": one.queued, "unanswered": one.unanswered, "congested": one.congested,
    }  # fmt: skip


def subscribed(one: Subscription) -> dict[str, Any]:
    return {
        "clientid": one.client, "topic": one.filter, "qos": one.qos, "nl": int(one.no_local), "rap": int(one.retain_as_published),
        "identifier": one.identifier or None, "durable": one.stored, "session": one.session,
    }  # fmt: skip


def _when(at_ms: int | None) -> str | None:
    return None if at_ms is None else when(at_ms)


def _address(peer: str | None) -> tuple[str | None, int | None]:
    """Of one that came over a network."""
    host, colon, port = (peer or "").rpartition(":")
    return (host.strip("[]"), int(port)) if colon and port.isdecimal() else (None, None)


async def found(asking: Asking, client: str) -> tuple[Client, tuple[str, ...]]:
    """Raises Refused when it is not there, or its home is away."""
    one, away = await inquiry.find(asking, client)
    if one is None:
        raise missing(away) if away else no_client(client)
    return one, away


TAGS: Final[list[str | Enum]] = ["clients"]


def add(app: FastAPI, broker: Broker) -> None:

    @app.get(f"{API}/clients", response_model=page_of(ClientAnswer), responses=ANSWERS, tags=TAGS)
    async def clients(
        cursor: Cursor = "", limit: Limit = LIMIT, conn_state: Annotated[Literal["connected", "disconnected"] | None, Query()] = None,
        like_clientid: Annotated[Part | None, Query()] = None,
    ) -> JSONResponse:  # fmt: skip
        """All who are connected, and all who are away and have a session."""
        asking = await broker.asking()
        connected = None if conn_state is None else conn_state == "connected"

        async def ask(cursor: str, count: int) -> Page[Client]:
            return await inquiry.page(asking, cursor, count, connected)

        if like_clientid is None:
            return page(await gathered(ask, cursor, limit), shown)
        like = like_clientid
        return page(
            await gathered(ask, cursor, limit, lambda one: like in one.client, lambda one: behind_client(one.home, one.client)), shown
        )

    @app.get(f"{API}/clients/{{clientid}}", response_model=OneClient, responses=ANSWERS | NOT_THERE, tags=TAGS)
    async def client(clientid: ClientId) -> JSONResponse:
        """One of them."""
        one, away = await found(await broker.asking(), clientid)
        return JSONResponse({**shown(one), "missing": list(away)})

    @app.delete(f"{API}/clients/{{clientid}}", status_code=204, response_class=Response, responses=ANSWERS | NOT_THERE, tags=TAGS)
    async def remove(clientid: ClientId) -> Response:
        """Disconnect it and end its session, with its subscriptions and everything that waits for it."""
        asking = await broker.asking()
        one, _ = await found(asking, clientid)
        kicked, away = await inquiry.kick(asking, clientid)
        if one.session == "ephemeral":
            # Those that are away may have it; the others have said that they have not.
            if away and not kicked:
                raise missing(away)
            return Response(status_code=204)
        session, away = await sessions.find(asking, clientid)
        if session is None and away:
            raise missing(away)
        if session is not None and is_shared(clientid.encode()):
            raise bad_request(f"{clientid} is a shared group: it ends with its last member, or, declared, with DELETE {API}/groups/...")
        if session is not None:
            await asking.destroy(clientid.encode(), session.session_id)
        return Response(status_code=204)

    @app.post(f"{API}/clients/{{clientid}}/kick", status_code=204, response_class=Response, responses=ANSWERS | NOT_THERE, tags=TAGS)
    async def kick(clientid: ClientId) -> Response:
        """Disconnect it, with 0x98 if it speaks MQTT 5. Its session stays, its will comes."""
        kicked, away = await inquiry.kick(await broker.asking(), clientid)
        if not kicked:
            raise missing(away) if away else not_found(f"{clientid} is not connected", "CLIENTID_NOT_FOUND")
        return Response(status_code=204)

    @app.get(f"{API}/clients/{{clientid}}/subscriptions", response_model=list[SubscriptionAnswer], responses=ANSWERS | NOT_THERE, tags=TAGS)
    async def subscriptions_of(clientid: ClientId) -> JSONResponse:
        """All that it has, also while it is away."""
        asking = await broker.asking()
        await found(asking, clientid)
        rows, away = await subscriptions.of_client(asking, clientid)
        if away:
            raise missing(away)
        return JSONResponse([subscribed(one) for one in rows])

    @app.get(f"{API}/subscriptions", response_model=page_of(SubscriptionAnswer), responses=ANSWERS, tags=TAGS)
    async def all_subscriptions(
        cursor: Cursor = "", limit: Limit = LIMIT, clientid: Annotated[Part | None, Query()] = None,
        match_topic: Annotated[TopicName | None, Query()] = None,
    ) -> JSONResponse:  # fmt: skip
        """Of all clients. A page has those of so many clients, and may have more rows than `limit`."""
        asking = await broker.asking()
        topic = None if match_topic is None else _topic(match_topic)

        def wanted(one: Subscription) -> bool:
            filter = one.filter.encode()
            return topic is None or matches(matched_filter(filter) if is_shared(filter) else filter, topic)

        if clientid is not None:
            rows, away = await subscriptions.of_client(asking, clientid)
            return page(Page(tuple(filter(wanted, rows)), "", away), subscribed)

        async def ask(cursor: str, count: int) -> Page[Subscription]:
            return await subscriptions.page(asking, cursor, count)

        return page(await gathered(ask, cursor, limit, wanted), subscribed)


def _topic(name: str) -> bytes:
    try:
        return check_topic_name(name)
    except ProtocolError as error:
        raise bad_request(f"match_topic: no topic: {error}") from None
