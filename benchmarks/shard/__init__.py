"""One shard in a process of its own, under the load of a gateway: what a store that is large, or has many generations, costs.

Run by the gates 3 and 4 of the storage engine (tests/gates/gate_03_3_*, gate_03_4_*). place makes the directories and the
configuration, host is the process of the shard, feed plays the gateway, aged makes a store with many generations, stops watches the loop.
"""
