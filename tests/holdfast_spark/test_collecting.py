"""What Spark's workers spare their garbage collector: each case in a process of its own, as what is frozen stays so."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, importlib.machinery, sys, weakref
if sys.argv[1:]:
    __spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
from holdfast_spark.collecting import spare_imported

class Ring:
    def __init__(self):
        self.me = self

spare_imported()
frozen = gc.get_freeze_count()
behind = Ring()
spare_imported()
again = gc.get_freeze_count()
gone = weakref.ref(behind)
del behind
gc.collect()
print(frozen > 1000, again <= frozen, gone() is None)
"""


def told(*program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", SCRIPT, *program], capture_output=True, text=True, check=True).stdout.split()


def test_a_worker_that_lives_on_spares_what_is_imported_once_and_collects_what_comes_later() -> None:
    """What is there at the first call is frozen, a second call freezes nothing more, and a ring made after the first goes."""
    assert told("pyspark.daemon") == ["True", "True", "True"]


def test_no_other_process_is_touched() -> None:
    """Neither the user's own program nor a worker that ends with its task."""
    assert told() == told("pyspark.worker") == ["False", "True", "True"]
