"""A disk that is watched and that fails on demand, for processes that know nothing of it.

``build`` compiles the interposed library, ``control`` starts and steers it,
``trace`` reads its log, ``forget`` simulates the loss of the page cache, and
``wal`` finds a message's place in RocksDB's own log files.
"""
