"""The small program that the tests run on the watched disk.

Writes numbered keys to a RocksDB, acknowledges each on its standard output when
it believes it durable, and waits to be killed.  Arguments: the directory, how many keys,
and ``sync`` or ``forgetful`` (the planted fault: it acknowledges without a sync).  A line
"more N" on standard input makes it write N further keys; a failed call is printed, not raised, so
that a test sees what a store in this state does next.
"""

from __future__ import annotations

import sys

from rocksdict import Options, Rdict, WriteOptions


def main() -> None:
    path, count, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    store = Rdict(path, options)
    unsynced = WriteOptions()
    unsynced.sync = False
    at = len(list(store.keys()))
    print("open", at, flush=True)
    while True:
        for _ in range(count):
            try:
                store.put(b"key-%06d" % at, b"value-%06d" % at * 10, write_opt=unsynced)
                if mode == "sync":
                    store.flush_wal(True)
            except Exception as error:
                print("failed", at, str(error).replace("\n", " "), flush=True)
                break
            print("acknowledged", at, flush=True)
            at += 1
        print("idle", flush=True)
        line = sys.stdin.readline().split()
        if not line:
            return
        count = int(line[1])


if __name__ == "__main__":
    main()
