"""What people carry messages with who have no bridge: a script on paho, with a durable session, which does one thing for each message.

`python -m tests.gates.paho_carrier KIND PORT PLACE`. It acknowledges a message when its callback has returned, as paho does by itself.
Files are flushed and not synced; a row is a transaction of its own; a request follows the answer to the one before; Parquet files have
10,000 rows, which are in memory, and acknowledged, until then.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

CLIENT = "carrier"
FILE_ROWS = 10_000
Carry = Callable[[paho.MQTTMessage], None]
INSERT = "INSERT INTO messages (topic, payload, qos, retain, received_at) VALUES ($1, $2, $3, $4, now())"


def to_jsonl(place: str) -> Carry:
    file = Path(place).open("a")  # noqa: SIM115  # open as long as the process

    def carry(message: paho.MQTTMessage) -> None:
        row = {"topic": message.topic, "payload": message.payload.decode(), "qos": message.qos, "retain": message.retain}
        file.write(json.dumps({**row, "received_at": time.time()}) + "\n")
        file.flush()

    return carry


def to_parquet(place: str) -> Carry:
    import pyarrow
    import pyarrow.parquet

    directory = Path(place)
    directory.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []

    def carry(message: paho.MQTTMessage) -> None:
        rows.append({"topic": message.topic, "payload": message.payload, "qos": message.qos, "received_at": time.time()})
        if len(rows) >= FILE_ROWS:
            # Whoever counts them sees whole files only.
            path = directory / f"{time.time_ns()}.parquet"
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path.with_suffix(".part"), compression="zstd")
            path.with_suffix(".part").rename(path)
            rows.clear()

    return carry


def to_postgresql(place: str) -> Carry:
    import asyncpg

    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(place))
    statement = loop.run_until_complete(connection.prepare(INSERT))

    def carry(message: paho.MQTTMessage) -> None:
        loop.run_until_complete(statement.fetch(message.topic, message.payload, message.qos, message.retain))

    return carry


def to_http(place: str) -> Carry:
    parts = urllib.parse.urlsplit(place)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port)

    def carry(message: paho.MQTTMessage) -> None:
        connection.request("POST", parts.path, message.payload, {"X-Topic": message.topic})
        connection.getresponse().read()

    return carry


KINDS: dict[str, Callable[[str], Carry]] = {
    "jsonl": to_jsonl,
    "parquet": to_parquet,
    "postgresql": to_postgresql,
    "http": to_http,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.paho_carrier")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("port", type=int)
    parser.add_argument("place")
    asked = parser.parse_args()
    carry = KINDS[asked.kind](asked.place)
    client = paho.Client(CallbackAPIVersion.VERSION2, CLIENT, clean_session=False)
    client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
    client.on_message = lambda _client, _given, message: carry(message)
    client.connect("127.0.0.1", asked.port)
    client.loop_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
