"""Gate 1 of issue 5: other people's tests pass, a browser is served, and the statements of the specifications are covered.

Paho's suites of MQTT 3.1.1 and 5 and the client matrix, from HOLDFAST_CONFORMANCE, each against a broker of its own with the
settings that its tests ask for (benchmarks.conformance), and with nothing allowed to fail that tests/conformance/exceptions-01.toml does
not explain; mqtt.js in a headless chromium over ws and wss, from pages that may and from one that may not; and of the statements that
bind a server 95 of 100 with tests, of both versions.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.conformance import EXCEPTIONS
from tests.broker.programs import run_program
from tests.broker.running import QUIET_RAY, Options, RunningBroker, free_port
from tests.browser.browsing import install, site
from tests.conformance.test_statements import COVERED_LEAST, IDS, covered, table
from tests.gates.gate import GateFailed, Scale
from tests.listening.authority import Authority

LIMIT_S = 5_400
SUITE_S = 2_400.0
STEPS = ["connected", "QoS 0", "QoS 1", "QoS 2", "reconnected", "left"]
SUITES = ("paho311", "paho5", "clients")
_COUNT = re.compile(r"^PASS (\d+) passed, (\d+) failed as expected.* 0 skipped", re.MULTILINE)


def with_mqttjs(suites: Path, work: Path) -> Path:
    """A copy of the suites that has what its clients need; the suites are not ours to change."""
    copy = work / "conformance"
    shutil.copytree(suites, copy)
    install(copy / "clients")
    return copy


async def suite(name: str, suites: Path) -> str:
    words = [sys.executable, "-m", "benchmarks.conformance", "--suites", str(suites), "--only", name]
    ran = await run_program(f"the suite {name}", words, SUITE_S)
    text = ran.out.decode(errors="replace")
    count = _COUNT.search(text)
    if ran.code or count is None:
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "outdated", "FAIL", "skipped"))]
        raise GateFailed(f"{name}: {'; '.join(failed)[:600] or ran.last_words}")
    passed, explained = int(count[1]), int(count[2])
    return f"{name} {passed} of {passed + explained}" + (f", {explained} as {EXCEPTIONS.name} explains" if explained else "")


def browser() -> str:
    """Pages of a listed site are served, and one of another site is refused."""
    with ExitStack() as stack:
        page, elsewhere = stack.enter_context(site()), stack.enter_context(site())
        directory = Path(stack.enter_context(TemporaryDirectory()))
        issued = Authority(directory).issue("localhost")
        ports = {"ws": free_port(), "wss": free_port()}
        chosen = {"listeners.wss.tls.cert": issued.cert, "listeners.wss.tls.key": issued.key}
        for kind, port in ports.items():
            chosen |= {f"listeners.{kind}.type": kind, f"listeners.{kind}.bind": f"127.0.0.1:{port}"}
            chosen[f"listeners.{kind}.ws.origins"] = f'["{page.origin}"]'
        stack.enter_context(RunningBroker(Options({**QUIET_RAY, **chosen})))
        for kind, port in ports.items():
            url = f"{kind}://127.0.0.1:{port}/mqtt"
            for version in ("4", "5"):
                said = page.visit(url=url, version=version, wanted="served")
                if said != {"steps": STEPS}:
                    raise GateFailed(f"a page over {kind}, MQTT {version}, wanted {STEPS} and said {said}")
            said = elsewhere.visit(url=url, version="5", wanted="refused")
            if said != {"steps": ["refused"]}:
                raise GateFailed(f"a page of another site over {kind} said {said}")
    return "mqtt.js in chromium over ws and wss"


def statements() -> str:
    shares = {protocol: covered(list(table()), protocol) for protocol in IDS}
    line = "statements " + ", ".join(f"{share:.1%} of {protocol}" for protocol, share in shares.items())
    if min(shares.values()) < COVERED_LEAST:
        raise GateFailed(line)
    return line


async def run(scale: Scale) -> str:
    suites = os.environ.get("HOLDFAST_CONFORMANCE")
    if not suites:
        raise GateFailed("HOLDFAST_CONFORMANCE is not set: it names the directory of the conformance suites")
    lines = [statements()]
    with TemporaryDirectory() as work:
        copy = await asyncio.to_thread(with_mqttjs, Path(suites), Path(work))
        for name in SUITES[:1] if scale.quick else SUITES:
            lines.append(await suite(name, copy))
    lines.append(await asyncio.to_thread(browser))
    return "; ".join(lines)
