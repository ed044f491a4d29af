"""Replication of one shard: a leader, its replicas, the ones among them that are in sync, and a register that says who is which.

docs/replication.md is the design. Pure code but for the log and the register, which are shells over files and sockets.
"""
