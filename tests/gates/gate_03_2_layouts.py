"""Gate 2 of issue 3: the layouts that may be the default against skipstream, in one run, on the machine it runs on.

Two layouts at a time get the same messages, turn by turn, in a process and a store each (benchmarks/storage). Seven ratios are wanted of
each. record_batch may miss some, and is not the default then; what the gate holds is that the default is one that the figures allow, and
that docs/layouts.md names it.
"""

from __future__ import annotations

import asyncio

from benchmarks.storage.choice import BASE, LIMITS, measure
from benchmarks.storage.page import default_sentence
from shards.layouts.registry import layout_named
from tests.gates.gate import GateFailed, Scale
from tests.needs import ROOT

LIMIT_S = 1500


async def run(scale: Scale) -> str:
    found = {layout: await asyncio.to_thread(measure, layout, 0.1 if scale.quick else 1.0) for layout in LIMITS}
    default = layout_named("auto")
    figure = "; ".join(f"{layout}: {', '.join(str(each) for each in wanted)}" for layout, wanted in found.items())
    failed = [] if default == BASE else [each for each in found[default] if not each.holds]
    if failed:
        raise GateFailed(f"{default} is the default, and it fails {len(failed)} of {len(found[default])}: {figure}")
    if default_sentence(default) not in (ROOT / "docs" / "layouts.md").read_text():
        raise GateFailed(f"docs/layouts.md does not say that the default is {default} ({figure})")
    return f"default {default}; {figure}"
