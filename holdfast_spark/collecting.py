"""Python's garbage collector in the processes that Spark keeps for one task after the other.

After every task, and after every planning of a query, such a process collects all garbage, and so looks at everything that was ever
imported: about 25 ms each time for Spark's own modules, pyarrow and numpy. None of that ever becomes garbage.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_PARENT: Final = "pyspark.daemon"
"""The program that such processes are forked from; nobody else's collector is any business of ours."""

_spared = False


def spare_imported() -> None:
    """In a worker of Spark that lives on: what is there now is never looked at again. Once in each process, so what piles up in it later
    is collected as ever; what nobody refers to any more goes in any case."""
    global _spared
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if not _spared and spec is not None and spec.name == _PARENT:
        _spared = True
        gc.freeze()
