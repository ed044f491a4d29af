"""Gate 3 of issue 5: every path x whose right x when it goes, in one broker, and 300 names that somebody chose.

1,280 cases, each with two clients and a topic of its own, and a marked message before and behind a change of the rules; a leak is any byte
of a marked message at somebody without the right later than a second after the file of rules was replaced. What has the right must come, so
no path is silent by itself. Then each hostile name connects, as a client id, and tries to read and to write what is the victim's.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from mqtt.packets import Will
from tests.access.names import HOSTILE_NAMES, VICTIM
from tests.access_paths.cases import MEMORY, Case, cases, rules
from tests.access_paths.talking import Talker
from tests.broker.running import Status
from tests.gates.access_walking import Pair, walk
from tests.gates.gate import GateFailed, Scale, running, settings

LIMIT_S = 600
N_SHARDS = 3
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
    chosen = cases() if not scale.quick else cases()[::9]
    with tempfile.TemporaryDirectory(prefix="hf-rules-") as directory:
        file = Path(directory) / "rules.toml"
        put(file, chosen, changed=False)
        wanted = settings(N_SHARDS, **{"access.rules": str(file), "gateway.count": "2"}, **memory_zone())
        async with running(wanted) as watched:
            status = await watched.status()
            pairs = [pair(case, status) for case in chosen]
            found, latest = await walk(pairs, lambda: put(file, chosen, changed=True))
            names = await hostile(status)
    if found or names:
        wrong = [*found, *names]
        raise GateFailed(f"{len(wrong)} faults in {len(chosen)} cases, the first ones: {'; '.join(wrong[:SHOWN])}")
    return (
        f"{len(chosen)} cases and {len(HOSTILE_NAMES)} hostile names without a leak; the last message that a right let through came "
        f"{latest:.2f} s after the file that took it away was there, load average of the machine {os.getloadavg()[0]:.1f}"
    )


def memory_zone() -> dict[str, str]:
    return {"zones.memory.client_id_prefixes": f'["{MEMORY}"]', "zones.memory.durable_sessions.enable": "false"}


def put(file: Path, chosen: list[Case], changed: bool) -> float:
    """The file as a whole, as an operator should; when it was there."""
    part = file.with_suffix(".part")
    part.write_text(rules(chosen, changed, more=OWN))
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
