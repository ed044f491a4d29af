"""The shard process of one of several sites (docs/replication.md, "Processes"): one replica, and the shard while it leads."""
