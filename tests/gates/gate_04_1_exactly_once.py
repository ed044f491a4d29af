"""Gate 1 of issue 4 of the plan: exactly once into the lake, under live writes and faults.

Publishers at 2,000 messages a second in sum, at QoS 1 and 2, over at least 3 rolls of generations in each shard; a streaming query of
Spark with a lease writes them into a Parquet lake. 30 faults: SIGKILL to a Python worker of Spark, its driver, its JVM, the reader, a
shard, a gateway, or the connection between Spark and the reader cut after so many bytes. In the end the lake has each row of the store
once and each acknowledged message, QoS 2 once, in order for each client and topic.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from pathlib import Path

from tests.gates.gate import Scale
from tests.lake.exactly_once import Drill, exactly_once
from tests.lake.faults import drawn

LIMIT_S = 2400
FAULTS = 30
SEED = 41
GENERATION_S = 60
QUICK_FAULTS, QUICK_GENERATION_S = 7, 15


async def run(scale: Scale) -> str:
    # Clients write into sockets whose other end was killed; asyncio has a line to say about each.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    faults = drawn(scale.of(FAULTS, QUICK_FAULTS), random.Random(SEED))
    drill = Drill(faults, SEED, generation_s=scale.of(GENERATION_S, QUICK_GENERATION_S))
    directory = Path(tempfile.mkdtemp(prefix="hf-lake-"))
    try:
        outcome = await exactly_once(drill, directory, lambda line: print(f"  {line}", flush=True))
    except BaseException as error:
        error.add_note(f"lake and words of Spark kept in {directory}")
        raise
    shutil.rmtree(directory)
    return str(outcome)
