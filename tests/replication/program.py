"""A replica's log on a watched disk, for tests that fail or kill it.

Arguments: the directory, and ``sync`` or ``forgetful`` (the planted fault: it acknowledges what no sync covers).  Lines on standard
input: ``append N`` (N batches of one entry), ``replace N`` (one batch in place of the last three entries, N times), ``promise N``.  Each
prints what it believes durable, ``refused`` with the reason when there is no room, ``failed`` with it when the log is done for; ``idle``
at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from shards.engine import StoreFailed, StoreFull
from shards.replication.entry import Entry
from shards.replication.log import ReplicatedLog
from tests.replication.logs import again, entry, make


def main() -> None:
    path, mode = Path(sys.argv[1]), sys.argv[2]
    log = again(path) if path.exists() else make(path)
    print("open", log.last, log.last_epoch, log.promised, flush=True)
    while line := sys.stdin.readline().split():
        for _ in range(int(line[1])):
            try:
                print("acknowledged", COMMANDS[line[0]](log, mode), flush=True)
            except StoreFull as error:
                print("refused", error, flush=True)
            except StoreFailed as error:
                print("failed", error, flush=True)
        print("idle", flush=True)


def _brought(log: ReplicatedLog, entries: list[Entry], mode: str) -> str:
    log.append(entries)
    if mode != "forgetful":
        log.sync()
    return f"{log.last} {log.last_epoch}"


def appended(log: ReplicatedLog, mode: str) -> str:
    return _brought(log, [entry(log.last + 1, max(1, log.last_epoch))], mode)


def replaced(log: ReplicatedLog, mode: str) -> str:
    epoch = log.last_epoch + 1
    first = log.last - 2
    return _brought(log, [entry(first, epoch), entry(first + 1, epoch)], mode)


def promised(log: ReplicatedLog, mode: str) -> str:
    log.promise(log.promised + 1)
    if mode != "forgetful":
        log.sync()
    return str(log.promised)


COMMANDS: dict[str, Callable[[ReplicatedLog, str], str]] = {"append": appended, "replace": replaced, "promise": promised}


if __name__ == "__main__":
    main()
