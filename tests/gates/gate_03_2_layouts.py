"""Gate 2 of issue 3: record_batch against skipstream, in one run, on the machine it runs on.

Both layouts get the same messages, turn by turn, in a process and a store each (benchmarks/storage). Seven ratios are wanted; when one
of them fails, ``skipstream`` stays the default, docs/layouts.md says so, and the gate passes: what it holds is that the default is
one that the figures allow, and that the page names it.
"""

from __future__ import annotations

import asyncio

from benchmarks.storage.choice import measure
from benchmarks.storage.page import default_sentence
from shards.layouts.registry import layout_named
from tests.gates.gate import GateFailed, Scale
from tests.needs import ROOT

LIMIT_S = 900


async def run(scale: Scale) -> str:
    found = await asyncio.to_thread(measure, 0.1 if scale.quick else 1.0)
    default = layout_named("auto")
    figure = "; ".join(str(each) for each in found)
    failed = [each for each in found if not each.holds]
    if failed and default == "record_batch":
        raise GateFailed(f"record_batch is the default, and it fails {len(failed)} of {len(found)}: {figure}")
    if default_sentence(default) not in (ROOT / "docs" / "layouts.md").read_text():
        raise GateFailed(f"docs/layouts.md does not say that the default is {default} ({figure})")
    return f"default {default}; {figure}"
