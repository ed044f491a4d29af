"""One real broker of two gateways with a listener of each kind, and the clients that people have; what changes by `holdfast reload`."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.broker.programs import run_program
from tests.broker.running import QUIET_RAY, Options, RunningBroker, Status
from tests.listening.authority import Authority
from tests.listening.house import CONNACK, CONNECT, PING, PONG

WITHIN_S = 60.0
KINDS = ("tcp", "tls", "ws", "wss", "unix")


@dataclass(frozen=True, slots=True)
class Listening:
    broker: RunningBroker
    authority: Authority
    file: Path
    status: Status

    def port(self, kind: str) -> int:
        return next(each.port for each in self.status.listeners if each.kind == kind and each.shared)

    def path(self, gateway: int) -> str:
        found = [each.host for each in self.status.listeners if each.kind == "unix" and each.gateway == f"gateway-{gateway}"]
        return found[0]

    def reload(self) -> str:
        command = [str(self.broker.executable), "reload", "--data-dir", str(self.broker.data_dir)]
        done = subprocess.run(command, cwd=self.broker.directory, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _write(file: Path, authority: Authority, directory: Path, *, web: str = "", secure: str = "") -> None:
    """directory: a short one, for the path of the socket."""
    tls = f'tls.cert = "{authority.directory}/broker.pem"\ntls.key = "{authority.directory}/broker.key"\n'
    file.write_text(
        f'[listeners.secure]\ntype = "tls"\nbind = "127.0.0.1:0"\n{tls}{secure}\n'
        f'[listeners.web]\ntype = "ws"\nbind = "127.0.0.1:0"\n{web}\n'
        f'[listeners.webs]\ntype = "wss"\nbind = "127.0.0.1:0"\n{tls}'
        f'[listeners.here]\ntype = "unix"\npath = "{directory}/mqtt.sock"\nmode = "0600"\n'
    )


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    authority.issue("broker")
    file = tmp_path_factory.mktemp("listeners") / "holdfast.toml"
    broker = RunningBroker(Options({**QUIET_RAY, "gateway.count": "2"}, config=file))
    _write(file, authority, broker.directory)
    with broker:
        yield Listening(broker, authority, file, broker.status())


def test_status_names_every_listener(listening: Listening) -> None:
    """Ports are shared by the gateways; a socket's path is each one's own."""
    found = sorted((each.gateway, each.kind, each.shared) for each in listening.status.listeners)
    own = [(f"gateway-{gateway}", kind, False) for gateway in (0, 1) for kind in ("tcp", "unix")]
    assert found == sorted(own + [(f"gateway-{gateway}", kind, True) for gateway in (0, 1) for kind in KINDS if kind != "unix"])
    assert listening.path(1) == listening.path(0) + ".1"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_paho_gets_what_it_publishes(kind: str, version: MQTTProtocolVersion, listening: Listening) -> None:
    """A hundred messages at QoS 2 of up to 100 kB, by each kind of listener; none missing, in order."""
    transport: Literal["tcp", "websockets", "unix"] = "websockets" if kind in ("ws", "wss") else "unix" if kind == "unix" else "tcp"
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"{kind}-{int(version)}", transport=transport, protocol=version)
    if kind in ("tls", "wss"):
        client.tls_set(listening.authority.ca)
    topic, got, done = f"listeners/{kind}/{int(version)}", [], threading.Event()
    sizes = [1 + 1_000 * each for each in range(100)]

    def subscribe(*_: object) -> None:
        client.subscribe(topic, 2)

    def publish(*_: object) -> None:
        for size in sizes:
            client.publish(topic, b"x" * size, 2)

    def take(_: object, __: object, message: mqtt.MQTTMessage) -> None:
        got.append(len(message.payload))
        if len(got) == len(sizes):
            done.set()

    client.on_connect = subscribe
    client.on_subscribe = publish
    client.on_message = take
    client.connect(listening.path(1) if kind == "unix" else "localhost", 1 if kind == "unix" else listening.port(kind))
    client.loop_start()
    try:
        assert done.wait(WITHIN_S), f"{len(got)} of {len(sizes)} came"
        assert got == sizes
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
async def test_mosquitto_s_clients_come_in(kind: str, listening: Listening) -> None:
    """One publishes, another gets it as it is retained."""
    where = ["--unix", listening.path(0)] if kind == "unix" else ["-h", "localhost", "-p", str(listening.port(kind))]
    tls = ["--cafile", listening.authority.ca] if kind == "tls" else []
    topic = ["-t", f"listeners/retained/{kind}"]
    sent = await run_program("mosquitto_pub", ["mosquitto_pub", *where, *tls, *topic, "-q", "1", "-r", "-m", "hello"], WITHIN_S)
    assert sent.code == 0, sent.last_words
    got = await run_program("mosquitto_sub", ["mosquitto_sub", *where, *tls, *topic, "-C", "1", "-W", "50"], WITHIN_S)
    assert (got.code, got.out) == (0, b"hello\n"), got.last_words


def shown(listening: Listening) -> int:
    """The serial number of the certificate that the broker shows, for each of some new connections: both gateways have one at least."""
    context = ssl.create_default_context(cafile=listening.authority.ca)
    found = set()
    for _ in range(20):
        with (
            socket.create_connection(("127.0.0.1", listening.port("tls")), timeout=WITHIN_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            certificate = connection.getpeercert()
            assert certificate is not None
            found.add(int(str(certificate["serialNumber"]), 16))
    return found.pop() if len(found) == 1 else 0


async def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, f"not within {WITHIN_S} s"
        await asyncio.sleep(0.1)


async def test_certificates_limits_and_origins_change_by_reload(listening: Listening) -> None:
    """Without a restart, and who is connected stays."""
    with socket.create_connection(("127.0.0.1", listening.port("tcp")), timeout=WITHIN_S) as client:
        await _changes_by_reload(listening, client)


async def _changes_by_reload(listening: Listening, client: socket.socket) -> None:
    client.sendall(CONNECT)
    assert client.recv(4) == CONNACK
    renewed = listening.authority.issue("broker")
    changed = {"web": "ws.path = '/other'\n", "secure": "tls.version_min = '1.3'\n"}
    _write(listening.file, listening.authority, listening.broker.directory, **changed)
    said = listening.reload()
    assert 'listeners.web.ws.path: "/mqtt" -> "/other"' in said and 'listeners.secure.tls.version_min: "1.2" -> "1.3"' in said
    await eventually(lambda: shown(listening) == renewed.serial)
    with socket.create_connection(("127.0.0.1", listening.port("ws")), timeout=WITHIN_S) as web:
        web.sendall(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n")
        assert web.recv(100).startswith(b"HTTP/1.1 404 ")
    client.sendall(PING)
    assert client.recv(2) == PONG
