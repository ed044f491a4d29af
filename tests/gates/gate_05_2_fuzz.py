"""Gate 2 of issue 5: a million hostile connections to a real broker, and nothing comes of it.

Structure-aware and raw mutations, MQTT 3.1.1 and 5, before and after login, TCP and WebSocket, whole, byte by byte and cut at random
(tests.fuzz.cases); a hundred thousand run in `make test`, inside a process. All processes live on, no log names an error, each is closed
with a code of its version or served, an honest client's messages come back all the while, and memory stays within 5 % of what it was
while warming up, in each of the broker's own processes and in all together (tests.gates.growth).
"""

from __future__ import annotations

import asyncio

from tests.broker.fuzzing import OPTIONS, WARM, Campaign
from tests.broker.running import RunningBroker
from tests.fuzz.cases import prepare
from tests.gates.gate import Scale

LIMIT_S = 2 * 3600
CASES = 1_000_000


async def run(scale: Scale) -> str:
    prepare()
    with RunningBroker(OPTIONS) as broker:
        campaign = Campaign(broker, 0, scale.of(CASES, 12_000), scale.of(WARM, 10_000))
        return await asyncio.to_thread(campaign.run)
