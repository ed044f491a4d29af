"""The reader: stored messages in bulk for Spark, over TCP (docs/reader.md).

    demand      how a command gets a reader that runs, and where it listens
    server      the process: links to the shards on its loop, everything else in threads
    tcp         sockets: who may connect, frames, one thread a connection
    verbs       what is asked, and the answers
    access      tokens, and what each may do
    views       a secondary of each shard's store, brought up to what the shard says is safe
    planning    what metadata answer: cuts, units, limits, times
    scanning    blocks out of a view
    shard_side  what is asked of the shards themselves

Always holds: nothing is read above a cut that the shard told.
"""
