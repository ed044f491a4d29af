"""Gate 5 of issue 5: what a connection costs that does nothing, beside mosquitto; what the new ways in cost a message; going down.

5,000 connections after CONNECT, ephemeral, keep-alive 60: PSS of the gateway is at most 12 kB for each. How fast they connect and what
CPU a connect costs is printed beside mosquitto's, taking turns. Storing and draining with 100 rules with placeholders, with a rate that is
not reached, and by WebSocket, costs at most 1.15 times what it costs without: medians of five rounds, taking turns. `holdfast down` with
1,000 clients of 100 unanswered messages each is over within 10 s, and all are acknowledged.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.brokers import Mosquitto, find_mosquitto
from tests.broker.running import Options, RunningBroker
from tests.conformance import packets
from tests.conformance.packets import Answer
from tests.conformance.peer import Peer
from tests.gates.crowds import crowd
from tests.gates.footprint import cpu_s, pss_bytes
from tests.gates.gate import GateFailed, Scale, settings
from tests.gates.gate_01_6_first_speed import DATA_ROLES, Measured, load

LIMIT_S = 2_400
IDLE = 5_000
IDLE_KB = 12.0
ROUNDS = 5
MESSAGES = 50_000
MORE = 1.15
LEAVING = 1_000
LEAVING_SHARDS = 3
"""A gateway stops reading who publishes to a shard that has so many messages unanswered: all of them are too many for one."""
UNANSWERED = 100
PINGREQ = b"\xc0\x00"
DOWN_S = 10.0
RULES = (
    "version = 1\n"
    + "".join(f'[[rule]]\nallow = ["publish", "subscribe"]\ntopics = ["rule{number}/${{user}}/${{client_id}}/#"]\n' for number in range(99))
    + '[[rule]]\nallow = ["all"]\ntopics = ["#"]\n'
)


@dataclass(frozen=True, slots=True)
class Connects:
    """So many idle connections made and held for a moment: how fast, and the CPU of each in microseconds, by process."""

    per_s: float
    cpu_us: dict[str, float]

    @property
    def all_us(self) -> float:
        return sum(self.cpu_us.values())


async def connects(port: int, pids: dict[str, list[int]], count: int) -> Connects:
    def used() -> dict[str, float]:
        return {role: sum(map(cpu_s, found)) for role, found in pids.items()}

    before = used()
    async with crowd(port, "idle", count) as there:
        said = await there.said()
        after = used()
        await there.end()
    return Connects(said.open / said.seconds, {role: (after[role] - before[role]) / count * 1e6 for role in pids})


def told(name: str, rounds: list[Connects]) -> str:
    """The medians of all rounds, and what the process that has most of it takes."""
    rate, cpu = median(each.per_s for each in rounds), median(each.all_us for each in rounds)
    by_role = {role: median(each.cpu_us[role] for each in rounds) for role in rounds[0].cpu_us}
    most = max(by_role, key=by_role.__getitem__)
    return f"{name} {rate:.0f} connects/s, {cpu:.0f} us of CPU each" + (f" ({most} {by_role[most]:.0f})" if len(by_role) > 1 else "")


async def idle(scale: Scale) -> tuple[list[str], list[str]]:
    count = scale.of(IDLE)
    with RunningBroker(Options(settings(1))) as broker, tempfile.TemporaryDirectory() as directory:
        status = broker.status()
        gateway, data = status.pids("gateway"), {role: status.pids(role) for role in DATA_ROLES}
        await connects(broker.port, data, 100)
        before = pss_bytes(gateway)
        async with crowd(broker.port, "idle", count) as there:
            await there.said()
            each_kb = (pss_bytes(gateway) - before) / count / 1_000
            await there.end()
        rounds: dict[str, list[Connects]] = {"holdfast": [], "mosquitto": []}
        program = find_mosquitto()
        mosquitto = Mosquitto(Path(directory), program) if program else None
        try:
            if mosquitto is not None:
                mosquitto.start()
            for _ in range(scale.of(ROUNDS, 1)):
                rounds["holdfast"].append(await connects(broker.port, data, count))
                if mosquitto is not None:
                    rounds["mosquitto"].append(await connects(mosquitto.port, {"all": list(mosquitto.groups()["all"])}, count))
        finally:
            if mosquitto is not None:
                mosquitto.stop()
    lines = [f"{each_kb:.1f} kB for an idle connection", *[told(name, found) for name, found in rounds.items() if found]]
    return lines, [f"{each_kb:.1f} kB, wanted at most {IDLE_KB}"] if each_kb > IDLE_KB else []


async def ratios(scale: Scale) -> tuple[list[str], list[str]]:
    """The median store and drain of each way, and how many times the plain one that is."""
    count = str(scale.of(MESSAGES))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rules = directory / "rules.toml"
        rules.write_text(RULES)
        rules.chmod(0o600)
        brokers = {
            name: stack.enter_context(RunningBroker(Options(settings(1, **more))))
            for name, more in {
                "plain": {"listeners.web.type": "ws", "listeners.web.bind": "127.0.0.1:0"},
                "100 rules": {"access.rules": str(rules)},
                "a rate": {"listeners.tcp.message_rate": "10000000"},
            }.items()
        }
        plain = brokers["plain"].status()
        (web,) = [str(each.port) for each in plain.listeners if each.kind == "ws"]
        ways: dict[str, tuple[RunningBroker, list[str]]] = {name: (broker, []) for name, broker in brokers.items()}
        ways["WebSocket"] = (brokers["plain"], ["--web", "--port", web])
        rounds: dict[str, list[Measured]] = {name: [] for name in ways}
        for number in range(scale.of(ROUNDS, 1)):
            # Who comes first is another one each time.
            for name in [*ways][number % len(ways) :] + [*ways][: number % len(ways)]:
                broker, more = ways[name]
                rounds[name] += await load("offline", broker, broker.status(), "--messages", count, *more)
    store = {name: median(each.store_us for each in found) for name, found in rounds.items()}
    drain = {name: median(each.drain_us for each in found) for name, found in rounds.items()}
    lines, problems = [f"plain: {store['plain']:.1f} us a store, {drain['plain']:.1f} us a drain"], []
    for name in [*ways][1:]:
        stored, drained = store[name] / store["plain"], drain[name] / drain["plain"]
        lines.append(f"{name}: {stored:.2f} times a store, {drained:.2f} times a drain")
        if max(stored, drained) > MORE:
            problems.append(f"{lines[-1]}, wanted at most {MORE}")
    return lines, problems


async def leaving(scale: Scale) -> tuple[list[str], list[str]]:
    """`down` while nothing is answered: the gateway has read all of it, and the shards stand still until it has closed its doors."""
    count = scale.of(LEAVING)
    with RunningBroker(Options(settings(LEAVING_SHARDS))) as broker:
        shards = [psutil.Process(pid) for pid in broker.status().pids("shard")]
        keeper = await Peer.connect(broker.port, 5, "keeper", kept=True)
        await keeper.subscribe(("going/down", 1))
        await keeper.leave()
        peers = [await Peer.connect(broker.port, 5, f"leaving-{number}", kept=True) for number in range(count)]
        messages = b"".join([packets.publish(5, "going/down", b"x" * 100, 1, number + 1) for number in range(UNANSWERED)])
        for shard in shards:
            shard.suspend()
        try:
            for peer in peers:
                peer.send(messages + PINGREQ)
            for peer in peers:
                await peer.answer(packets.PINGRESP)
            began = time.monotonic()
            down = asyncio.create_task(asyncio.to_thread(broker.down))
            while await is_open(broker.port) and time.monotonic() - began < DOWN_S:  # noqa: ASYNC110  # what is waited for is in another process
                await asyncio.sleep(0.02)
        finally:
            for shard in shards:
                shard.resume()
        ends = await asyncio.gather(*[peer.rest() for peer in peers])
        took_s = time.monotonic() - began
        await down
    wrong = [problem for rows in ends if (problem := unsaid([row for row in rows if isinstance(row, Answer)]))]
    line = (
        f"{count} clients with {UNANSWERED} unanswered messages each gone within {took_s:.1f} s, {count - len(wrong)} with all acknowledged"
    )
    problems = [f"{line}, wanted {DOWN_S:.0f}"] if took_s > DOWN_S else []
    if wrong:
        problems.append(f"{len(wrong)} of {count} clients have lost acknowledgements: {wrong[0]}")
    return [line], problems


async def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def unsaid(rows: list[Answer]) -> str:
    """What is wrong with the end of a client: an acknowledgement missing, or no DISCONNECT 0x8B behind them."""
    last = rows[-1] if rows else None
    acknowledged = [row.packet_id for row in rows if row.kind == packets.PUBACK and row.code < 0x80]
    told = last is not None and last.kind == packets.DISCONNECT and last.code == 0x8B
    return (
        "" if told and acknowledged == [*range(1, UNANSWERED + 1)] else f"{len(acknowledged)} of {UNANSWERED} acknowledged, and then {last}"
    )


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
