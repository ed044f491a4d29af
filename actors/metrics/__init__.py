"""What the broker says of itself in numbers, for Prometheus (docs/metrics.md).

    names       what a metric is: name, kind, labels, what it means
    of_shard, of_gateway, of_session, of_process   those of each kind of process, and how its figures become them
    of_node     those that belong to no process
    of_survey   how far sessions are behind
    catalogue   all of them
    latency     times, in fixed buckets; and means over the last five minutes
    sheet       the files of one process, and writing to them
    meter       does that once a second
    scrape      all files together, as one answer
    to_ray      a few of these figures, to Ray's own metrics

Always holds: what a process has counted stays when it dies, so nothing that only grows ever falls while the broker runs.
"""
