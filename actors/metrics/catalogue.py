"""All metrics there are: what is scraped is in here, and docs/metrics.md has a line for each."""

from __future__ import annotations

from typing import Final

from actors.metrics import of_bridge, of_gateway, of_node, of_process, of_session, of_shard, of_site, of_survey
from actors.metrics.names import Metric

METRICS: Final[tuple[Metric, ...]] = (
    *of_node.METRICS, *of_process.METRICS, *of_survey.METRICS, *of_gateway.METRICS, *of_session.METRICS, *of_shard.METRICS,
    *of_site.METRICS, *of_bridge.METRICS,
)  # fmt: skip
BY_FAMILY: Final = {metric.family: metric for metric in METRICS}
"""As prometheus_client calls them."""
NOT_HERE: Final = {
    "emqx_ds_buffer_latency": "Nothing waits in a buffer: a message is written in the turn of the loop in which it came.",
    "emqx_ds_storage_skipstream_lts_future": "A read ends at the watermark, so it never meets what is beyond.",
    "emqx_ds_poll": "There is no queue of polls: who is near the head is fed, the others are answered at once.",
    "emqx_ds_subs": "There are no beams: a shard feeds a session actor once for all of its sessions, by their filters.",
    "emqx_ds_write_buffer_memory_usage": "Not asked for: 64 MiB for each shard at most (operations.md), and not every engine knows.",
    "emqx_ds_total_trash_size": "A dropped generation is erased at once.",
    "emqx_ds_raft": 'There is no Raft: what is in sync, who leads and who is behind is under "Several sites".',
    "emqx_durable_subscriptions_max": "Nothing bounds the sum of all sessions' subscriptions.",
}
"""Names, or what they begin with, of EMQX's metrics that have no meaning here, and why."""
