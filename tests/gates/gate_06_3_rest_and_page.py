"""Gate 3 of issue 6: schemathesis asks REST whatever its description allows, and does not, and finds nothing; and the admin page, with
50,000 sessions and 10,000 topics, has its answers in 200 ms, and its pictures are there (tests.gates.page_answers)."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.broker.rest import Rest, schemathesis
from tests.gates.gate import GateFailed, Scale, running, settings
from tests.gates.multitude import messages, sessions
from tests.gates.page_answers import page_answers

LIMIT_S = 3600
EXAMPLES = 200
SEED = 6
PHASES = "examples,coverage,fuzzing"


async def run(scale: Scale) -> str:
    page = await page_answers(scale)
    examples = scale.of(EXAMPLES)
    async with running(settings(2, **{"admin.enable": "true", "admin.listen": "127.0.0.1:0"})) as watched:
        broker = watched.broker
        await sessions(broker.port, [f"meter-{number}" for number in range(20)], ["plant/+/temp"] * 20)
        await messages(broker.port, "publisher", [f"plant/{number}/temp" for number in range(50)])
        rest = await asyncio.to_thread(Rest.of, broker)
        with tempfile.TemporaryDirectory() as directory:
            found = await asyncio.to_thread(schemathesis, rest, Path(directory), examples, SEED, PHASES)
    if found:
        raise GateFailed(f"schemathesis has found: {found} ({page})")
    return f"schemathesis found nothing with {examples} examples of each operation; {page}"
