"""The floor of rights: who somebody is, and what he may do.  Pure code, asked by gateways and shards alike (docs/access.md)."""
