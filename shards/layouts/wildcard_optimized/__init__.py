"""The layout wildcard_optimized: bit-field keys over the learned topic structure, read in jumps, epoch by epoch.

keys turns numbers into keys and says where to jump; epochs collects what one epoch has for a reader; layout is the port's
implementation. docs/formats.md, "Generation, layout wildcard_optimized", has the bytes.
"""

from __future__ import annotations

from shards.layouts.wildcard_optimized.layout import WildcardOptimized

__all__ = ["WildcardOptimized"]
