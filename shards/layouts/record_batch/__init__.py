"""The layout ``record_batch``: batches of messages for streams without varying levels, and for streams with them single
messages with an index that is written later, in pages.

layout is the port's implementation, values is the format of messages; the index is shards.layouts.paged_index.
"""

from __future__ import annotations

from shards.layouts.paged_index.index import Bounds
from shards.layouts.record_batch.layout import RecordBatch

__all__ = ["Bounds", "RecordBatch"]
