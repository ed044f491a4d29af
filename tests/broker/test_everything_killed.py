"""One broker with every default: what it has acknowledged outlives all of its processes, and its directory is its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.broker import crowd
from tests.broker.client import Client, settled
from tests.broker.crowd import Member, Planned
from tests.broker.history import History, faults
from tests.broker.running import QUIET_RAY, CommandFailed, Options, RunningBroker, free_port

TOPICS = [f"e/{a}/{b}" for a in range(3) for b in range(4)]
MESSAGES = 60
PROFILES = [Options({**QUIET_RAY, "profile": profile}) for profile in ("spread", "compact")]
ACK_S = 60.0
SETTLE_S = 60.0


async def publish(client: Client, qos: int, count: int) -> None:
    for n in range(count):
        await client.publish(TOPICS[n % len(TOPICS)], qos, size=64)
    await client.acknowledged(ACK_S)


@pytest.mark.parametrize("broker", PROFILES, indirect=True, ids=["spread", "compact"])
@pytest.mark.needs("mosquitto-clients")
async def test_durable_sessions_get_everything_after_kill_9_of_all_processes(broker: RunningBroker) -> None:
    """Every filter form, QoS 1 and 2, MQTT 3.1.1 and 5, our client and mosquitto's; session present, in order, QoS 2 once."""
    history = History()
    members = [
        Member("mosquitto", 4, "m-4-1", 1, "e/+/2"),
        Member("mosquitto", 4, "m-4-2", 2, "e/#"),
        Member("mosquitto", 5, "m-5-1", 1, "e/#"),
        Member("mosquitto", 5, "m-5-2", 2, "e/1/2"),
    ]
    sessions = {
        Client(broker.port, "s-4-1", history, version=4): ("e/#", 1),
        Client(broker.port, "s-4-2", history, version=4): ("e/+/2", 2),
        Client(broker.port, "s-5-1", history, version=5): ("e/1/2", 1),
        Client(broker.port, "s-5-2", history, version=5): ("e/#", 2),
    }
    publishers = [Client(broker.port, f"p-{n}", history, version=5 if n % 2 else 4) for n in range(4)]
    planned = [Planned(Member("mosquitto", 5, "p-mosquitto", 2), ("e/1/2",) * MESSAGES)]
    for session, (topic_filter, qos) in sessions.items():
        await session.start()
        await session.subscribe(topic_filter, qos)
        await session.stop()
    await crowd.create(broker.port, history, members)
    for publisher in publishers:
        await publisher.start()
    await asyncio.gather(
        crowd.publish(broker.port, history, planned, ACK_S),
        *(publish(publisher, 1 + n // 2, MESSAGES) for n, publisher in enumerate(publishers)),
    )
    assert history.acknowledged_count() == 5 * MESSAGES
    assert all(len(history.due(session.client_id)) >= MESSAGES for session in sessions)

    killed = await asyncio.to_thread(broker.kill_all)
    status = await asyncio.to_thread(broker.up)
    assert not set(killed) & set(status.pids())

    for session in sessions:
        connection = await session.start()
        assert connection.session_present, session.client_id
    # The publishers' sessions go on as well: packet identifiers, QoS 2 state, order.
    await asyncio.gather(*(publish(publisher, 1 + n // 2, 12) for n, publisher in enumerate(publishers)))
    assert await crowd.resume(broker.port, history, members, 30) == []
    await settled(history, SETTLE_S)
    assert faults(history) == []
    assert [client.client_id for client in [*sessions, *publishers] if client.sessions_lost] == []
    for client in (*sessions, *publishers):
        await client.stop()


async def test_two_brokers_side_by_side_share_nothing(broker: RunningBroker) -> None:
    """The same client and topic names at both: each keeps its own, and the end of one is not noticed by the other."""
    before = broker.ready_status()
    with RunningBroker(Options(QUIET_RAY)) as other:
        histories = [History(), History()]
        for port, history, count in zip((broker.port, other.port), histories, (20, 30), strict=True):
            session, publisher = (Client(port, name, history) for name in ("beside", "beside-publisher"))
            await session.start()
            await session.subscribe("beside/#", 1)
            await publisher.start()
            for n in range(count):
                await publisher.publish(f"beside/{n % 3}", 1)
            await publisher.acknowledged(ACK_S)
            await settled(history, SETTLE_S)
            await session.stop()
            await publisher.stop()
        assert [len(history.sessions["beside"].deliveries) for history in histories] == [20, 30]
        assert [faults(history) for history in histories] == [[], []]
        await asyncio.to_thread(other.kill_all)
    assert broker.ready_status() == before


def refusal(broker: RunningBroker, data_dir: Path) -> str:
    """What `up` says to whoever may not start."""
    command = [str(broker.executable), "up", "--detach", "--data-dir", str(data_dir), "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_a_directory_in_use_is_refused_in_one_sentence(broker: RunningBroker) -> None:
    """It names the directory and the pid, and the broker that has it is untouched."""
    before = broker.ready_status()
    (launcher,) = before.pids("launcher")
    said = refusal(broker, broker.data_dir)
    assert said == f"Holdfast did not start: the data directory {broker.data_dir} is in use by the broker with pid {launcher}.\n"
    assert broker.ready_status() == before


def test_a_directory_of_a_newer_version_is_refused_in_one_sentence(broker: RunningBroker, tmp_path: Path) -> None:
    """Reading what one does not understand would be worse than not starting; nothing in it is changed."""
    site = json.loads((broker.data_dir / "site.json").read_text())
    # A directory of several sites has the one between them.
    newest = site["format"] + 2
    newer = json.dumps({**site, "format": newest})
    (tmp_path / "site.json").write_text(newer)
    said = refusal(broker, tmp_path)
    assert said.count("\n") == 1 and f"format version {newest}" in said and "use a newer Holdfast" in said
    assert (tmp_path / "site.json").read_text() == newer


def test_a_port_in_use_is_refused_in_one_sentence(broker: RunningBroker) -> None:
    """Gateways share their port, but not with another broker's."""
    second = RunningBroker(Options(QUIET_RAY))
    second.port = broker.port
    with pytest.raises(CommandFailed, match=f"the port {broker.port} on 127.0.0.1 cannot be used"):
        second.up()
    second.close()
