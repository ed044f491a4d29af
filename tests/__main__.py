"""Runs all tests: those that start real brokers or Spark beside the others, since they spend half of their time waiting.

`python -m tests` is `make test`; its words are handed on to both runs of pytest. The others are printed as they go, the report of the real
brokers when it is complete. With a single core one run follows the other. Two runs and no third: all that Spark is used for in one process
has one session of it, and real brokers judge times; the others do not, and make way (OTHERS_NICE).

What failed beside all that is run once more with nothing beside it. Failing again is red; passing is green and named in the last lines:
such a test is unsteady, by its own fault or by ours, and somebody has to find which. More than UNSTEADY_MAX of them are red as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import STARTS_BROKERS, USES_SPARK

REPLICAS = [f"tests/actors/replica/test_{name}.py" for name in ("campaign", "fail_points", "forced")]
"""Processes of their own, and real time."""
BESIDE = [*(f"tests/{suite}" for suite in (*USES_SPARK, *STARTS_BROKERS)), *REPLICAS]
OTHERS_NICE = 15
UNSTEADY_MAX = 8


def pytest(cache: Path) -> list[str]:
    """The command that runs pytest and leaves in `cache` what failed."""
    return [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"]


def failed(cache: Path) -> list[str]:
    """Node ids of the tests that failed in the run that left `cache`."""
    path = cache / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def first_look(words: list[str], brokers_cache: Path, others_cache: Path) -> list[int]:
    """Both runs side by side. Returns their exit codes."""
    brokers_command = [*pytest(brokers_cache), *BESIDE, *words]
    others_command = ["nice", "-n", str(OTHERS_NICE), *pytest(others_cache), *(f"--ignore={each}" for each in BESIDE), *words]
    with tempfile.TemporaryFile("w+") as report:
        brokers = subprocess.Popen(brokers_command, stdout=report, stderr=subprocess.STDOUT)
        others = 1
        try:
            if len(os.sched_getaffinity(0)) < 2:
                brokers.wait()
            others = subprocess.run(others_command, check=False).returncode
            print("\nreal brokers and Spark, which ran beside all that:", flush=True)
            brokers.wait()
        except KeyboardInterrupt:
            # The same Ctrl-C went to both; pytest takes its brokers down before it ends.
            brokers.wait()
        report.seek(0)
        print(report.read(), flush=True)
    return [brokers.returncode, others]


def second_look(caches: list[Path]) -> tuple[int, list[str]]:
    """Runs again, one after the other, what failed in the runs that left `caches`. Returns an exit code, and the unsteady tests."""
    unsteady = [name for cache in caches for name in failed(cache)]
    if not 0 < len(unsteady) <= UNSTEADY_MAX:
        return 1, []
    print(f"\nonce more, with nothing beside them: {' '.join(unsteady)}", flush=True)
    codes = [subprocess.run([*pytest(cache), *failed(cache)], check=False).returncode for cache in caches if failed(cache)]
    return int(any(codes)), unsteady


def main(words: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-tests-") as directory:
        caches = [Path(directory, "brokers"), Path(directory, "others")]
        codes = first_look(words, *caches)
        result, unsteady = second_look(caches) if 1 in codes and set(codes) <= {0, 1} else (int(any(codes)), [])
    for name in unsteady if result == 0 else []:
        print(f"unsteady, failed beside others and passed alone: {name}")
    print(f"{'red' if result else 'green'} after {time.monotonic() - began:.0f} s")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
