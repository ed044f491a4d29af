"""The words of MQTT: packets, the codec for 3.1, 3.1.1 and 5, topics, the topic trie.

Everything here is a pure function of bytes, or a structure in memory: no I/O, no
clock, no randomness.  Nothing here imports another floor of the house.
"""
