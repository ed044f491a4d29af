"""A crowd of foreign clients: mosquitto's own programs, paho-mqtt, aiomqtt and amqtt, at once and as separate processes.

Says who is in the crowd, starts the processes and writes what they report into a
``History``. What one library does inside is in foreign.py; whether it was right is
left to the checks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.broker.foreign import CONNECT_S, EXPIRY_S, QUIET_S, STALLED_S
from tests.broker.history import Delivery, History, payload_of
from tests.broker.programs import run_program
from tests.needs import find_program

SPEAKS = (("mosquitto", 4), ("mosquitto", 5), ("paho", 4), ("paho", 5), ("aiomqtt", 4), ("aiomqtt", 5), ("amqtt", 4))
"""Each library with each version of MQTT that it speaks."""


@dataclass(frozen=True, slots=True)
class Member:
    """One session or one publisher of the crowd."""

    library: str
    version: int
    client_id: str
    qos: int
    filter: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a publisher is to send, in order."""

    member: Member
    topics: tuple[str, ...]


class CrowdFailed(Exception):
    """A foreign client could not do what it was told."""


async def create(port: int, history: History, members: Sequence[Member]) -> None:
    """Every member connects, subscribes and goes away; what is published from now on is due to it."""
    mosquitto = [member for member in members if member.library == "mosquitto"]
    jobs = _jobs([member for member in members if member.library != "mosquitto"], {})
    reports, _ = await asyncio.gather(
        _run_all(port, "create", jobs, CONNECT_S * 3), asyncio.gather(*(_mosquitto_create(port, each) for each in mosquitto))
    )
    _no_failures(reports)
    for member in members:
        history.subscribed(member.client_id, member.filter, member.qos, time.monotonic_ns())


async def resume(port: int, history: History, members: Sequence[Member], deadline_s: float) -> list[str]:
    """Every member comes back and takes what is stored for it; returns the ids of those told that they had no session.

    mosquitto_sub and amqtt do not say; theirs shows by the messages.
    """
    due = {member.client_id: len(history.due(member.client_id)) for member in members}
    mosquitto = [member for member in members if member.library == "mosquitto"]
    jobs = _jobs([member for member in members if member.library != "mosquitto"], due)
    reports, lines = await asyncio.gather(
        _run_all(port, "resume", jobs, deadline_s),
        asyncio.gather(*(_mosquitto_resume(port, each, due[each.client_id], deadline_s) for each in mosquitto)),
    )
    _no_failures(reports)
    absent: list[str] = []
    for client_id, report in reports.items():
        if report["session_present"] is False:
            absent.append(client_id)
        arrived = report["arrived"]
        assert isinstance(arrived, list)
        for topic, payload, qos, dup in arrived:
            history.delivered(client_id, Delivery(topic, payload.encode(), qos, dup))
    for member, deliveries in zip(mosquitto, lines, strict=True):
        for delivery in deliveries:
            history.delivered(member.client_id, delivery)
    return absent


async def publish(port: int, history: History, plans: Sequence[Planned], deadline_s: float, size: int = 0) -> None:
    """Every publisher sends what it has planned; acknowledgements go into the history when its process has reported."""
    began = time.monotonic_ns()
    for plan in plans:
        for topic in plan.topics:
            history.publish(plan.member.client_id, topic, plan.member.qos, began)
    messages = {
        plan.member.client_id: [(topic, payload_of(plan.member.client_id, n, size).decode()) for n, topic in enumerate(plan.topics)]
        for plan in plans
    }
    jobs: dict[tuple[str, int], list[dict[str, object]]] = defaultdict(list)
    for plan in plans:
        if plan.member.library != "mosquitto":
            member = plan.member
            jobs[member.library, member.version].append(
                {"client_id": member.client_id, "qos": member.qos, "messages": messages[member.client_id]}
            )
    mosquitto = [plan for plan in plans if plan.member.library == "mosquitto"]
    reports, _ = await asyncio.gather(
        _run_all(port, "publish", jobs, deadline_s),
        asyncio.gather(*(_mosquitto_publish(port, each, messages[each.member.client_id], deadline_s) for each in mosquitto)),
    )
    _no_failures(reports)
    now = time.monotonic_ns()
    for plan in plans:
        client_id = plan.member.client_id
        count = len(plan.topics) if plan.member.library == "mosquitto" else int(str(reports[client_id]["acknowledged"]))
        for number in range(count):
            history.acknowledged(client_id, number, now)


# ---------------------------------------------------------------- libraries

Reports = dict[str, dict[str, object]]


def _jobs(members: Sequence[Member], counts: dict[str, int]) -> dict[tuple[str, int], list[dict[str, object]]]:
    jobs: dict[tuple[str, int], list[dict[str, object]]] = defaultdict(list)
    for member in members:
        jobs[member.library, member.version].append(
            {"client_id": member.client_id, "filter": member.filter, "qos": member.qos, "count": counts.get(member.client_id, 0)}
        )
    return jobs


async def _run_all(port: int, action: str, jobs: dict[tuple[str, int], list[dict[str, object]]], deadline_s: float) -> Reports:
    runs = [_run(library, version, port, action, each, deadline_s) for (library, version), each in jobs.items()]
    return {client_id: report for reports in await asyncio.gather(*runs) for client_id, report in reports.items()}


async def _run(library: str, version: int, port: int, action: str, jobs: list[dict[str, object]], deadline_s: float) -> Reports:
    command = [sys.executable, "-m", "tests.broker.foreign", library, str(version), str(port), action]
    out = await _output(f"{library} {version} {action}", command, json.dumps(jobs).encode(), deadline_s)
    reports: Reports = json.loads(out.splitlines()[-1])
    return reports


async def _output(name: str, command: list[str], data: bytes, deadline_s: float) -> bytes:
    ran = await run_program(name, command, deadline_s, data)
    if ran.code != 0:
        raise CrowdFailed(f"{name} ended with code {ran.code}: {ran.last_words}")
    return ran.out


def _no_failures(reports: Reports) -> None:
    failed = {client_id: report["failure"] for client_id, report in reports.items() if report.get("failure")}
    if failed:
        name, first = next(iter(failed.items()))
        raise CrowdFailed(f"{len(failed)} of {len(reports)} foreign clients failed; {name}: {first}")


# ---------------------------------------------------------------- mosquitto's programs


def _mosquitto(program: str, port: int, member: Member) -> list[str]:
    path = find_program(program)
    if path is None:
        raise CrowdFailed(f"{program} is not installed: make system-deps")
    command = [path, "-h", "127.0.0.1", "-p", str(port), "-i", member.client_id, "-q", str(member.qos), "-c"]
    command += ["-V", "mqttv5" if member.version == 5 else "mqttv311"]
    if member.version == 5:
        command += ["-x", str(EXPIRY_S)]
    return command


async def _mosquitto_create(port: int, member: Member) -> None:
    # -E: leave as soon as the subscription is acknowledged.
    command = [*_mosquitto("mosquitto_sub", port, member), "-t", member.filter, "-E"]
    await _output(f"mosquitto_sub -E of {member.client_id}", command, b"", CONNECT_S)


async def _mosquitto_resume(port: int, member: Member, wanted: int, deadline_s: float) -> list[Delivery]:
    command = [*_mosquitto("mosquitto_sub", port, member), "-t", member.filter, "-F", "%q %t %p"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    deliveries: list[Delivery] = []
    deadline = time.monotonic() + deadline_s
    try:
        while time.monotonic() < deadline:
            patience = QUIET_S if len(deliveries) >= wanted else STALLED_S
            try:
                line = await asyncio.wait_for(process.stdout.readline(), patience)
            except TimeoutError:
                break
            if not line:
                words = (await process.stderr.read()).decode(errors="replace").strip()
                raise CrowdFailed(f"mosquitto_sub of {member.client_id} ended by itself with code {await process.wait()}: {words}")
            qos, topic, payload = line.rstrip(b"\n").split(b" ", 2)
            deliveries.append(Delivery(topic.decode(), payload, int(qos)))
    finally:
        if process.returncode is None:
            process.terminate()  # mosquitto_sub then disconnects properly
            await process.wait()
    return deliveries


async def _mosquitto_publish(port: int, plan: Planned, messages: list[tuple[str, str]], deadline_s: float) -> None:
    """-l: one message a line; ends with code 0 when all are acknowledged."""
    topics = set(plan.topics)
    if len(topics) != 1:
        raise ValueError(f"mosquitto_pub publishes to one topic, found {len(topics)}")
    command = [*_mosquitto("mosquitto_pub", port, plan.member), "-t", topics.pop(), "-l"]
    data = "".join(payload + "\n" for _, payload in messages).encode()
    await _output(f"mosquitto_pub of {plan.member.client_id}", command, data, deadline_s)
