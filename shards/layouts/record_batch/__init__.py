"""The layout ``record_batch``: batches of messages for streams without varying levels, and for streams with them single
messages with an index that is written later, in pages.

layout is the port's implementation, values and pages are the formats; paged_index and what it is made of is the index.
"""

from __future__ import annotations

from shards.layouts.record_batch.layout import RecordBatch
from shards.layouts.record_batch.paged_index import Bounds

__all__ = ["Bounds", "RecordBatch"]
