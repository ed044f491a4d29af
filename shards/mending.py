"""Makes anew what a store derives from its messages, where it does not say what they say. For a command that has the store to itself.

Neither a message nor anything else that is no index is changed (shards.layouts.port.Layout.mended). A crash in the middle leaves a store
that is no worse than before, and the same command goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shards.engine import Engine
from shards.generations import Generations
from shards.survey import Survey


class Mended(NamedTuple):
    """faults: what was found.  left: what is still found afterwards, mostly nothing."""

    generation: int
    faults: list[str]
    left: list[str]


def mend(shard: int, engine: Engine) -> Iterator[Mended]:
    """Of each generation in which something was wrong. Raises StoreFailed, or ValueError, where messages or an index cannot be read."""
    survey = Survey(shard, engine)
    for info in survey.generations:
        upto = survey.position if info.until is None else min(survey.position, info.until)
        layout = Generations.view(engine).layout(info.id)
        faults = list(layout.faults(upto))
        if faults:
            for ops in layout.mended(upto):
                if ops:
                    engine.write(ops)
            engine.sync()
            yield Mended(info.id, faults, list(Generations.view(engine).layout(info.id).faults(upto)))
