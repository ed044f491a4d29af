"""Gate 5 of issue 5: what a connection costs that does nothing, beside mosquitto; what the new ways in cost a message; going down.

5,000 connections after CONNECT, ephemeral, keep-alive 60: PSS of the gateway is at most 12 kB for each. How fast they connect and what
CPU a connect costs is printed beside mosquitto's, taking turns. Storing and draining with 100 rules with placeholders, and with a rate
that is not reached, costs at most 1.15 times what it costs without: the cheapest of so many rounds, taking turns. `holdfast down` with
1,000 clients of 100 unanswered messages each is over within 10 s, and whoever has no answer to all is told 0x8B.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.brokers import Mosquitto, find_mosquitto
from tests.broker.running import Options, RunningBroker
from tests.conformance import packets
from tests.conformance.packets import Answer
from tests.conformance.peer import Peer
from tests.gates.crowds import Said, crowd
from tests.gates.footprint import cpu_s, pss_bytes
from tests.gates.gate import GateFailed, Scale, settings
from tests.gates.gate_01_6_first_speed import DATA_ROLES, load

LIMIT_S = 2_400
IDLE = 5_000
IDLE_KB = 12.0
ROUNDS = 3
MESSAGES = 30_000
MORE = 1.15
LEAVING = 1_000
UNANSWERED = 100
DOWN_S = 10.0
RULES = (
    "version = 1\n"
    + "".join(f'[[rule]]\nallow = ["publish", "subscribe"]\ntopics = ["rule{number}/${{user}}/${{client_id}}/#"]\n' for number in range(99))
    + '[[rule]]\nallow = ["all"]\ntopics = ["#"]\n'
)


async def connects(port: int, pids: list[int], count: int) -> tuple[Said, float]:
    """So many idle connections made and held for a moment: what they said, and microseconds of the broker's CPU for each."""
    before = sum(map(cpu_s, pids))
    async with crowd(port, "idle", count) as there:
        said = await there.said()
        used = sum(map(cpu_s, pids)) - before
        await there.end()
    return said, used / count * 1e6


async def idle(scale: Scale) -> tuple[list[str], list[str]]:
    count = scale.of(IDLE)
    with RunningBroker(Options(settings(1))) as broker, tempfile.TemporaryDirectory() as directory:
        status = broker.status()
        gateway, data = status.pids("gateway"), [pid for role in DATA_ROLES for pid in status.pids(role)]
        await connects(broker.port, data, 100)
        before = pss_bytes(gateway)
        async with crowd(broker.port, "idle", count) as there:
            await there.said()
            each_kb = (pss_bytes(gateway) - before) / count / 1_000
            await there.end()
        rounds: dict[str, list[tuple[Said, float]]] = {"holdfast": [], "mosquitto": []}
        program = find_mosquitto()
        mosquitto = Mosquitto(Path(directory), program) if program else None
        try:
            if mosquitto is not None:
                mosquitto.start()
            for _ in range(scale.of(ROUNDS, 1)):
                rounds["holdfast"].append(await connects(broker.port, data, count))
                if mosquitto is not None:
                    rounds["mosquitto"].append(await connects(mosquitto.port, list(mosquitto.groups()["all"]), count))
        finally:
            if mosquitto is not None:
                mosquitto.stop()
    lines = [f"{each_kb:.1f} kB for an idle connection"]
    for name, found in rounds.items():
        if found:
            rate = max(said.open / said.seconds for said, _ in found)
            lines.append(f"{name} {rate:.0f} connects/s, {min(us for _, us in found):.0f} us of CPU each")
    return lines, [f"{each_kb:.1f} kB, wanted at most {IDLE_KB}"] if each_kb > IDLE_KB else []


async def ratios(scale: Scale) -> tuple[list[str], list[str]]:
    """The cheapest store and drain of each way, and how many times the plain one that is."""
    count = str(scale.of(MESSAGES))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rules = directory / "rules.toml"
        rules.write_text(RULES)
        rules.chmod(0o600)
        ways = {"plain": {}, "100 rules": {"access.rules": str(rules)}, "a rate": {"listeners.tcp.message_rate": "10000000"}}
        brokers = {name: stack.enter_context(RunningBroker(Options(settings(1, **more)))) for name, more in ways.items()}
        store: dict[str, list[float]] = {name: [] for name in ways}
        drain: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(scale.of(ROUNDS, 1)):
            for name, broker in brokers.items():
                (measured,) = await load("offline", broker, broker.status(), "--messages", count)
                store[name].append(measured.store_us)
                drain[name].append(measured.drain_us)
    lines, problems = [], []
    for name in list(ways)[1:]:
        stored, drained = min(store[name]) / min(store["plain"]), min(drain[name]) / min(drain["plain"])
        lines.append(f"{name}: {stored:.2f} times a store, {drained:.2f} times a drain")
        if max(stored, drained) > MORE:
            problems.append(f"{lines[-1]}, wanted at most {MORE}")
    return lines, problems


async def leaving(scale: Scale) -> tuple[list[str], list[str]]:
    """`down` while all have messages on their way."""
    count = scale.of(LEAVING)
    with RunningBroker(Options(settings(1))) as broker:
        peers = []
        for number in range(count):
            peers.append(await Peer.connect(broker.port, 5, f"leaving-{number}", kept=True))
        for peer in peers:
            peer.send(b"".join([packets.publish(5, "going/down", b"x" * 100, 1, number + 1) for number in range(UNANSWERED)]))
        began = time.monotonic()
        down = asyncio.create_task(asyncio.to_thread(broker.down))
        ends = await asyncio.gather(*[peer.rest() for peer in peers])
        took_s = time.monotonic() - began
        await down
        wrong = [problem for rows in ends if (problem := unsaid([row for row in rows if isinstance(row, Answer)]))]
        answered = sum(row.kind == packets.PUBACK for rows in ends for row in rows if isinstance(row, Answer))
    line = f"{count} clients gone within {took_s:.1f} s, {answered} of {count * UNANSWERED} messages acknowledged"
    problems = [f"{line}, wanted {DOWN_S:.0f}"] if took_s > DOWN_S else []
    if wrong:
        problems.append(f"{len(wrong)} of {count} clients were not told: {wrong[0]}")
    return [line], problems


def unsaid(rows: list[Answer]) -> str:
    """What is wrong with the end of a client: an answer missing, and no DISCONNECT 0x8B behind the others."""
    last = rows[-1] if rows else None
    if last is not None and last.kind == packets.DISCONNECT and last.code == 0x8B:
        return ""
    acknowledged = sum(row.kind == packets.PUBACK for row in rows)
    return "" if acknowledged == UNANSWERED else f"{acknowledged} of {UNANSWERED} acknowledged, and then {last}"


async def run(scale: Scale) -> str:
    lines: list[str] = []
    problems: list[str] = []
    for part in (idle, ratios, leaving):
        more, wrong = await part(scale)
        lines += more
        problems += wrong
    if problems:
        raise GateFailed(f"{'; '.join(problems)} (all: {'; '.join(lines)})")
    return "; ".join(lines)
