"""Gate 3 of issue 5: every path x whose right x when it goes x what says so, in one broker, and 300 names that somebody chose.

2,000 cases, each with two clients and a topic of its own, and a marked message before and behind a change of the rights; a leak is any byte
of a marked message at somebody without the right later than a second after the file of rules was replaced, or his token had ended. What has
the right must come, so no path is silent by itself. 48 cases more are tokens that write by APPEND or read by SCAN. Then each hostile name
connects, as a client id, and tries to read and to write what is the victim's.

A second broker has a plugin that decides: each path of MQTT once more, first while the plugin says otherwise of its own accord, and of a
third of them while it does so together with a change of the rules.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from pathlib import Path

from mqtt.packets import Will
from tests.access.names import HOSTILE_NAMES, VICTIM
from tests.access_paths import claims, plugged
from tests.access_paths.bulk import bulk_cases, write_configuration
from tests.access_paths.cases import MEMORY, Case, cases, denials, rules
from tests.access_paths.talking import Talker
from tests.broker.running import RunningBroker, Status
from tests.conformance.packets import CONNACK, connect
from tests.conformance.peer import Peer, fresh
from tests.gates.access_bulk import walk_bulk
from tests.gates.access_walking import Pair, by_weight, walk
from tests.gates.gate import GateFailed, Scale, running, settings

LIMIT_S = 600
N_SHARDS = 3
PLUGIN_WITHIN_S = 60.0
SHOWN = 6
OWN = """[[rule]]
allow = ['all']
topics = ['own/${client_id}/#']

[[rule]]
deny = ['all']
topics = ['own/#']
"""
SECRET = b"marked-victim"
STOLEN = b"marked-stolen"


async def run(scale: Scale) -> str:
    by_rules = await run_rules(scale)
    return f"{by_rules}; {await run_plugin(scale)}"


async def run_plugin(scale: Scale) -> str:
    """Each path once more, where a plugin has the word."""
    alone, with_rules = [part if not scale.quick else part[::9] for part in plugged.plugin_cases()]
    found: list[str] = []
    latest: list[float] = []
    with tempfile.TemporaryDirectory(prefix="hf-plugin-") as name:
        directory = Path(name)
        file, says = directory / "rules.toml", directory / "denied"
        put(file, "version = 1\n")
        put(says, plugged.denied([*alone, *with_rules], False))
        more = {"access.rules": str(file), "gateway.count": "2", **memory_zone(), **plugged.settings(directory)}
        async with running(settings(N_SHARDS, **more), environment=plugged.environment()) as watched:
            status = await watched.status()
            await plugin_is_there(status)

            def say() -> float:
                return put(says, plugged.denied([*alone, *with_rules], True))

            def say_with_rules() -> float:
                at = say()
                put(file, plugged.ANOTHER_RULE)
                return at

            for part, change in ((alone, say), (with_rules, say_with_rules)):
                put(says, plugged.denied([*alone, *with_rules], False))
                wrong, _, latest_s = await walk([pair(case, status) for case in part], change)
                found += wrong
                latest.append(latest_s)
            found += ended(status, await watched.status())
    cases = len(alone) + len(with_rules)
    if found:
        raise GateFailed(told(found, cases, "cases of a plugin"))
    return (
        f"{cases} cases with a plugin that decides without a leak; the last message that it let through came {latest[0]:.2f} s after it "
        f"had said otherwise, {latest[1]:.2f} s where the rules changed too"
    )


async def plugin_is_there(status: Status) -> None:
    """At each gateway: the broker is up before its plugin is, and refuses meanwhile whoever it is asked about."""
    async with asyncio.timeout(PLUGIN_WITHIN_S):
        for port in [status.own_port(each.name) for each in status.processes if each.role == "gateway"]:
            while True:
                peer = await Peer.open(port, 5, connect(5, fresh("early")))
                if (await peer.answer(CONNACK)).code == 0:
                    await peer.leave()
                    break
                await peer.closed()
                await asyncio.sleep(0.1)


def told(found: list[str], cases: int, words: str) -> str:
    wrong = by_weight(found)
    leaks = len([fault for fault in wrong if fault.startswith("LEAK")])
    return (
        f"{leaks} leaks and {len(wrong) - leaks} other faults in {cases} {words}, load average {os.getloadavg()[0]:.1f}, the first ones: "
        f"{'; '.join(wrong[:SHOWN])}"
    )


async def run_rules(scale: Scale) -> str:
    chosen = cases() if not scale.quick else cases()[::9]
    bulk = bulk_cases() if not scale.quick else bulk_cases()[::5]
    with tempfile.TemporaryDirectory(prefix="hf-rules-") as name:
        directory = Path(name)
        file, tokens = directory / "rules.toml", directory / "holdfast.toml"
        put(file, rules(chosen, False, OWN + denials(bulk, False)))
        write_configuration(tokens, bulk, changed=False)
        more = {
            "access.rules": str(file),
            "gateway.count": "2",
            "pipeline.listen": "127.0.0.1:0",
            **memory_zone(),
            **claims.settings(directory),
        }
        async with running(settings(N_SHARDS, **more), config=tokens) as watched:
            status = await watched.status()
            pairs = [pair(case, status) for case in chosen]
            changed = rules(chosen, True, OWN + denials(bulk, False))
            found, change, latest_s = await walk(pairs, lambda: put(file, changed))

            def change_bulk() -> float:
                write_configuration(tokens, bulk, changed=True)
                put(file, rules(chosen, True, OWN + denials(bulk, True)))
                return reload(watched.broker)

            found += await walk_bulk(bulk, watched.broker.data_dir, status.listeners[0].port, change_bulk)
            found += await hostile(status)
            found += ended(status, await watched.status())
    if found:
        raise GateFailed(told(found, len(chosen) + len(bulk), "cases"))
    return (
        f"{len(chosen)} cases of MQTT, {len(bulk)} of APPEND and SCAN, and {len(HOSTILE_NAMES)} hostile names without a leak; the last "
        f"message that a right let through came {latest_s:.2f} s after the file that took it away was there (this process was up to "
        f"{change.late_s:.2f} s late to see it), load average of the machine {os.getloadavg()[0]:.1f}"
    )


def reload(broker: RunningBroker) -> float:
    """When the settings of the file were in force."""
    command = [str(broker.executable), "reload", "--data-dir", str(broker.data_dir)]
    done = subprocess.run(command, cwd=broker.directory, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise GateFailed(f"`holdfast reload` ended with code {done.returncode}: {done.stderr[-300:]}")
    return time.monotonic()


def ended(before: Status, now: Status) -> list[str]:
    """Processes that were there at the beginning, and are not there any more: what they served is no question of rights."""
    left = set(now.pids())
    return [f"GONE {each.name}, pid {each.pid}, has ended meanwhile" for each in before.processes if each.pid not in left]


def memory_zone() -> dict[str, str]:
    return {"zones.memory.client_id_prefixes": f'["{MEMORY}"]', "zones.memory.durable_sessions.enable": "false"}


def put(file: Path, text: str) -> float:
    """The file as a whole, as an operator should; when it was there."""
    part = file.with_suffix(".part")
    part.write_text(text)
    os.replace(part, file)
    return time.monotonic()


def pair(case: Case, status: Status) -> Pair:
    gateways = sorted(each.name for each in status.processes if each.role == "gateway")
    here = status.own_port(gateways[0])
    there = status.own_port(gateways[-1])
    reader = Talker(here, case.reader, case.version, keeps=case.stored)
    return Pair(case, reader, Talker(there if case.gateways == "other" else here, case.writer, case.version))


async def hostile(status: Status) -> list[str]:
    """What somebody got, or wrote, who is called so that he might be taken for the victim."""
    port = status.listeners[0].port
    victim = Talker(port, VICTIM, 5)
    await victim.connect()
    await victim.subscribe(f"own/{VICTIM}/#", 1)
    others: list[Talker] = []
    wrong: list[str] = []
    for name in HOSTILE_NAMES:
        if name == VICTIM or not 0 < len(name.encode(errors="replace")) < 65_536 or not _is_text(name):
            continue
        other = Talker(port, name, 5)
        will = Will(f"own/{VICTIM}/will".encode(), STOLEN, 1)
        if await other.connect(will) == 0:
            wrong.append(f"LEAK {name!r} may leave a will to the victim's topic")
        await other.vanish()
        if await other.connect() != 0:
            continue
        for topic_filter in (f"own/{VICTIM}/#", f"own/{VICTIM}/x", f"$share/g/own/{VICTIM}/#"):
            if await other.subscribe(topic_filter, 0) < 0x80:
                wrong.append(f"LEAK {name!r} may subscribe to {topic_filter}")
        other.publish(f"own/{VICTIM}/x", STOLEN, 1)
        others.append(other)
    victim.publish(f"own/{VICTIM}/x", SECRET, 1)
    for _ in range(100):
        if victim.when(SECRET):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    if not victim.when(SECRET):
        wrong.append("the victim did not get its own message")
    if victim.when(STOLEN):
        wrong.append("LEAK the victim got what somebody else has written")
    wrong += [f"LEAK {other.client_id!r} got the victim's message" for other in others if other.when(SECRET)]
    for other in (*others, victim):
        await other.vanish(politely=True)
    if len(others) < len(HOSTILE_NAMES) // 2:
        wrong.append(f"only {len(others)} of {len(HOSTILE_NAMES)} names could connect")
    return wrong


def _is_text(name: str) -> bool:
    """U+0000 and what is no UTF-8 cannot be in a packet of MQTT."""
    try:
        return "\0" not in name and bool(name.encode())
    except UnicodeEncodeError:
        return False
