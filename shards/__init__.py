"""The storage floor: what one shard keeps, in which order, and who asked for it.

Pure code.  It leaves sockets, processes, clocks and Ray to `actors`, and the bytes of MQTT to `mqtt`.
"""
