"""The other side of a bridge in a process of its own, which a gate can kill: a web server, or a subscriber of another broker.

`python -m tests.gates.bridge_receiver web PORT FILE` and `... mqtt PORT FILE --version 5`. Each message is a line of FILE before it is
answered: its identity (empty where the bridge can send none), a tab, and the beginning of its payload, which is its publisher and its
number (tests.broker.history). A file that is there is gone on with.
"""

from __future__ import annotations

import argparse
import sys
import urllib.parse
from pathlib import Path
from typing import Any, BinaryIO

KEEP_ALIVE_S = 60
BATCH_BYTES_MAX = 64 << 20


def line_of(identity: str, payload: bytes) -> bytes:
    return identity.encode() + b"\t" + b" ".join(payload.split(b" ", 2)[:2]) + b"\n"


def web(port: int, out: BinaryIO) -> None:
    from aiohttp import web

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        out.write(line_of(urllib.parse.unquote(request.headers.get("Idempotency-Key", "")), body))
        return web.Response(status=204)

    application = web.Application(client_max_size=BATCH_BYTES_MAX)
    application.router.add_route("*", "/in", take)
    web.run_app(application, host="127.0.0.1", port=port, print=None, access_log=None)


def mqtt(port: int, out: BinaryIO, version: str) -> None:
    """A durable session, so that nothing is missed while its broker is away."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    def connected(client: paho.Client, *_: Any) -> None:
        client.subscribe("#", qos=1)

    def came(_client: paho.Client, _given: Any, message: paho.MQTTMessage) -> None:
        said = dict(getattr(message.properties, "UserProperty", []))
        out.write(line_of(said.get("holdfast-id", ""), bytes(message.payload)))

    def subscribed(*_: Any) -> None:
        print("subscribed", flush=True)

    if version == "5":
        client = paho.Client(CallbackAPIVersion.VERSION2, "receiver", protocol=paho.MQTTv5)
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own
        expiry.SessionExpiryInterval = 0xFFFFFFFF
        client.on_connect, client.on_message, client.on_subscribe = connected, came, subscribed
        client.reconnect_delay_set(1, 2)
        client.connect("127.0.0.1", port, KEEP_ALIVE_S, clean_start=False, properties=expiry)
    else:
        client = paho.Client(CallbackAPIVersion.VERSION2, "receiver", clean_session=False)
        client.on_connect, client.on_message, client.on_subscribe = connected, came, subscribed
        client.reconnect_delay_set(1, 2)
        client.connect("127.0.0.1", port, KEEP_ALIVE_S)
    client.loop_forever()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.bridge_receiver")
    parser.add_argument("kind", choices=("web", "mqtt"))
    parser.add_argument("port", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--version", choices=("3.1.1", "5"), default="5")
    asked = parser.parse_args()
    # Unbuffered: what is written is the kernel's, whoever is killed.
    with asked.file.open("ab", buffering=0) as out:
        if asked.kind == "web":
            web(asked.port, out)
        else:
            mqtt(asked.port, out, asked.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
