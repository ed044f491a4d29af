"""Layouts by name. A generation names its layout for ever, so a name, once shipped, is never given another meaning."""

from __future__ import annotations

from collections.abc import Callable

from shards.engine import Engine
from shards.layouts.pagestream import PageStream
from shards.layouts.port import Layout, LayoutOptions
from shards.layouts.record_batch import RecordBatch
from shards.layouts.skipstream import SkipStream
from shards.layouts.wildcard_optimized import WildcardOptimized

OpenLayout = Callable[[Engine, int, LayoutOptions], Layout]

LAYOUTS: dict[str, OpenLayout] = {
    "pagestream": PageStream.open,
    "record_batch": RecordBatch.open,
    "skipstream": SkipStream.open,
    "wildcard_optimized": WildcardOptimized.open,
}
"""Name in a generation's row -> opens that layout over a family."""

WITH_BIT_FIELDS = frozenset({"wildcard_optimized"})
"""Whose rows have the options of bit-field keys."""

DERIVING = frozenset({"pagestream", "record_batch"})
"""Whose index is written later, in idle work, on the one site that has it."""

ALIASES = {"auto": "pagestream", "wildcard_optimized_v2": "skipstream"}
"""Name in the configuration -> name in a row."""


class UnknownLayout(ValueError):
    """A layout this program does not have."""


def layout_named(name: str) -> str:
    """The name to put into a new generation's row."""
    name = ALIASES.get(name, name)
    if name not in LAYOUTS:
        raise UnknownLayout(f"layout {name!r} is not known; there are {', '.join(sorted((*LAYOUTS, *ALIASES)))}")
    return name


def open_layout(name: str, engine: Engine, family: int, options: LayoutOptions) -> Layout:
    if name not in LAYOUTS:
        raise UnknownLayout(f"generation {family} is of layout {name!r}, which this program does not have")
    return LAYOUTS[name](engine, family, options)
