"""Clients that other people wrote, behind one small interface; run as a program, one process per library and version.

``python -m tests.broker.foreign LIBRARY VERSION PORT ACTION`` reads a list of jobs as JSON from standard
input, does them all at once, and prints one JSON object. Actions:

* ``create``: connect a durable session, subscribe, disconnect;
* ``resume``: connect again, take what arrives until ``count`` messages are there and nothing has come for
  ``QUIET_S`` (so that a message too many is seen), disconnect;
* ``publish``: connect a durable session, publish each message after the one before was acknowledged, disconnect.

A process of its own, because a library that hangs or spoils its event loop must not
take the gate with it. What was sent and what it means is left to the parent (crowd.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from typing import Protocol

QUIET_S = 1.5
STALLED_S = 60.0
ACK_S = 60.0
CONNECT_S = 60.0
EXPIRY_S = 86_400

Arrived = tuple[str, str, int, bool]
"""Topic, payload, QoS, DUP."""


class Foreign(Protocol):
    """One client of a library. ``open`` says whether the session was present, or None where the library hides it."""

    arrived: list[Arrived]

    async def open(self, port: int, version: int, client_id: str) -> bool | None: ...
    async def subscribe(self, topic_filter: str, qos: int) -> None: ...
    async def publish(self, topic: str, payload: str, qos: int) -> None: ...
    async def close(self) -> None: ...


class Paho:
    """paho-mqtt with its own network thread."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self._present: bool | None = None
        self._refusal = ""
        self._connected = threading.Event()
        self._subscribed = threading.Event()

    async def open(self, port: int, version: int, client_id: str) -> bool | None:
        import paho.mqtt.client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties
        from paho.mqtt.reasoncodes import ReasonCode

        api = CallbackAPIVersion.VERSION2
        protocol = MQTTProtocolVersion.MQTTv5 if version == 5 else MQTTProtocolVersion.MQTTv311
        clean = None if version == 5 else False
        self._client = client = mqtt.Client(api, client_id, clean_session=clean, protocol=protocol, reconnect_on_failure=False)

        def on_connect(_c: mqtt.Client, _u: object, flags: mqtt.ConnectFlags, reason: ReasonCode, _p: Properties | None) -> None:
            self._present = flags.session_present
            self._refusal = str(reason) if reason.is_failure else ""
            self._connected.set()

        def on_message(_c: mqtt.Client, _u: object, message: mqtt.MQTTMessage) -> None:
            self.arrived.append((message.topic, message.payload.decode(), message.qos, message.dup))

        def on_subscribe(_c: mqtt.Client, _u: object, _m: int, reasons: list[ReasonCode], _p: Properties | None) -> None:
            self._refusal = "".join(str(reason) for reason in reasons if reason.is_failure)
            self._subscribed.set()

        client.on_connect, client.on_message, client.on_subscribe = on_connect, on_message, on_subscribe
        if version == 5:
            expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            expiry.SessionExpiryInterval = EXPIRY_S
            client.connect("127.0.0.1", port, 60, clean_start=False, properties=expiry)
        else:
            client.connect("127.0.0.1", port, 60)
        client.loop_start()
        await self._wait(self._connected, "CONNACK")
        return self._present

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        self._client.subscribe(topic_filter, qos)
        await self._wait(self._subscribed, "SUBACK")

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        info = self._client.publish(topic, payload, qos)
        deadline = time.monotonic() + ACK_S
        while not info.is_published():
            if time.monotonic() > deadline:
                raise TimeoutError(f"paho: no acknowledgement after {ACK_S:.0f} s")
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)

    async def _wait(self, event: threading.Event, what: str) -> None:
        if not await asyncio.to_thread(event.wait, CONNECT_S):
            raise TimeoutError(f"paho: no {what} after {CONNECT_S:.0f} s")
        if self._refusal:
            raise ConnectionError(f"paho: {what} {self._refusal}")


class Aiomqtt:
    """aiomqtt; its session present flag is read where paho, which it is built on, hands it over."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []

    async def open(self, port: int, version: int, client_id: str) -> bool | None:
        import aiomqtt
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        if version == 5:
            expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            expiry.SessionExpiryInterval = EXPIRY_S
            client = aiomqtt.Client(
                "127.0.0.1", port, identifier=client_id, protocol=aiomqtt.ProtocolVersion.V5, clean_start=False, properties=expiry
            )
        else:
            client = aiomqtt.Client("127.0.0.1", port, identifier=client_id, protocol=aiomqtt.ProtocolVersion.V311, clean_session=False)
        self._client = client
        present: list[bool] = []
        inner = client._client
        handed_on = inner.on_connect

        def on_connect(*arguments: object) -> None:
            present.append(bool(getattr(arguments[2], "session_present", False)))
            handed_on(*arguments)  # type: ignore[misc,arg-type]  # aiomqtt's own callback, of whichever signature

        inner.on_connect = on_connect
        await client.__aenter__()
        self._reading = asyncio.create_task(self._read())
        return present[0]

    async def _read(self) -> None:
        async for message in self._client.messages:
            payload = message.payload
            assert isinstance(payload, bytes)
            # aiomqtt does not hand on DUP.
            self.arrived.append((str(message.topic), payload.decode(), message.qos, False))

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        await self._client.subscribe(topic_filter, qos, timeout=CONNECT_S)

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        await self._client.publish(topic, payload, qos, timeout=ACK_S)

    async def close(self) -> None:
        self._reading.cancel()
        await self._client.__aexit__(None, None, None)


class Amqtt:
    """amqtt's client (3.1.1 only); it hides session present, so a session shows by what it gets."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []

    async def open(self, port: int, version: int, client_id: str) -> bool | None:
        from amqtt.client import MQTTClient

        assert version == 4, "amqtt speaks 3.1.1 only"
        self._client = MQTTClient(client_id=client_id, config={"auto_reconnect": False, "keep_alive": 60})
        await asyncio.wait_for(self._client.connect(f"mqtt://127.0.0.1:{port}/", cleansession=False), CONNECT_S)
        self._reading = asyncio.create_task(self._read())
        return None

    async def _read(self) -> None:
        while True:
            try:
                message = await self._client.deliver_message(timeout_duration=600)
            except TimeoutError:
                continue
            if message is not None and message.publish_packet is not None:
                self.arrived.append((message.topic, bytes(message.data).decode(), message.qos, bool(message.publish_packet.dup_flag)))

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        codes = await asyncio.wait_for(self._client.subscribe([(topic_filter, qos)]), CONNECT_S)
        if codes != [qos]:
            raise ConnectionError(f"amqtt: SUBACK {codes}")

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        await asyncio.wait_for(self._client.publish(topic, payload.encode(), qos=qos), ACK_S)

    async def close(self) -> None:
        self._reading.cancel()
        await self._client.disconnect()


LIBRARIES: dict[str, type[Foreign]] = {"paho": Paho, "aiomqtt": Aiomqtt, "amqtt": Amqtt}
Job = dict[str, object]


async def create(client: Foreign, port: int, version: int, job: Job) -> Job:
    await client.open(port, version, str(job["client_id"]))
    await client.subscribe(str(job["filter"]), int(str(job["qos"])))
    await client.close()
    return {}


async def resume(client: Foreign, port: int, version: int, job: Job) -> Job:
    present = await client.open(port, version, str(job["client_id"]))
    wanted, count, moved = int(str(job["count"])), 0, time.monotonic()
    while True:
        await asyncio.sleep(0.05)
        now = time.monotonic()
        if len(client.arrived) != count:
            count, moved = len(client.arrived), now
        elif now - moved > (QUIET_S if count >= wanted else STALLED_S):
            break
    await client.close()
    return {"session_present": present, "arrived": client.arrived}


async def publish(client: Foreign, port: int, version: int, job: Job) -> Job:
    await client.open(port, version, str(job["client_id"]))
    done = 0
    messages = job["messages"]
    assert isinstance(messages, list)
    failure = ""
    try:
        for topic, payload in messages:
            await client.publish(topic, payload, int(str(job["qos"])))
            done += 1
        await client.close()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return {"acknowledged": done, "failure": failure}


ACTIONS = {"create": create, "resume": resume, "publish": publish}


async def main() -> None:
    library, version, port, action = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    logging.disable(logging.CRITICAL)  # libraries log what we report ourselves
    jobs: list[Job] = json.load(sys.stdin)
    results = await asyncio.gather(*(ACTIONS[action](LIBRARIES[library](), port, version, job) for job in jobs), return_exceptions=True)
    out = {
        str(job["client_id"]): {"failure": f"{type(result).__name__}: {result}"} if isinstance(result, BaseException) else result
        for job, result in zip(jobs, results, strict=True)
    }
    print(json.dumps(out))


if __name__ == "__main__":
    asyncio.run(main())
