"""Several sites that share one store: who there is, who leads each shard, and where they are reached (docs/replication.md, "Processes")."""
