"""Files of a store in which damage was met while it ran: noted beside them, so that the next opening knows what to be careful with.

The notes are lines `file<TAB>cause` in `quarantine/suspects`, in the directory of the store. What is done about them is for
shards.salvage. Holds: a note that cannot be written is left out, as whoever met the damage has louder things to do.
"""

from __future__ import annotations

import contextlib
import os
import re

QUARANTINE = "quarantine"
_NOTES = "suspects"
_TABLE = re.compile(r"(?<!\d)(\d{6,}\.sst)\b")


def note(path: str, cause: str) -> None:
    """Remember the data file that is named in a sentence of RocksDB, if there is one and it is not known yet."""
    named = _TABLE.search(cause)
    if named is None or named[1] in read(path):
        return
    with contextlib.suppress(OSError):
        os.makedirs(os.path.join(path, QUARANTINE), exist_ok=True)
        with open(_file(path), "a", encoding="utf-8") as notes:
            notes.write(f"{named[1]}\t{' '.join(cause.split())}\n")
            notes.flush()
            os.fsync(notes.fileno())


def read(path: str) -> dict[str, str]:
    """File -> what was said when it was met."""
    try:
        with open(_file(path), encoding="utf-8", errors="replace") as notes:
            lines = notes.read().splitlines()
    except OSError:
        return {}
    return {file: cause for file, _, cause in (line.partition("\t") for line in lines) if _TABLE.fullmatch(file)}


def keep(path: str, files: set[str]) -> None:
    """Forget all but these."""
    known = read(path)
    left = {file: cause for file, cause in known.items() if file in files}
    if not left:
        with contextlib.suppress(OSError):
            os.unlink(_file(path))
    elif left != known:
        with contextlib.suppress(OSError), open(_file(path) + ".part", "w", encoding="utf-8") as notes:
            notes.write("".join(f"{file}\t{cause}\n" for file, cause in left.items()))
            os.replace(notes.name, _file(path))


def _file(path: str) -> str:
    return os.path.join(path, QUARANTINE, _NOTES)
