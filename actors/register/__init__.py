"""The register of shards.replication.register: one copy in a file, the same asked over a link, or etcd."""
