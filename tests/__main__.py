"""Runs all tests: those that start real brokers or Spark beside the others, since they spend half of their time waiting.

`python -m tests` is `make test`; its words are handed on to both runs of pytest. The others are printed as they go, the report of the real
brokers when it is complete. With a single core one run follows the other. Two runs and no third: all that Spark is used for in one process
has one session of it, and real brokers judge times; the others do not, and make way (OTHERS_NICE).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from tests.conftest import STARTS_BROKERS, USES_SPARK

DIRECTORIES = [f"tests/{suite}" for suite in (*USES_SPARK, *STARTS_BROKERS)]
PYTEST = [sys.executable, "-m", "pytest"]
BROKERS = [*PYTEST, "-o", "cache_dir=.pytest_cache/brokers", *DIRECTORIES]
OTHERS_NICE = 15
OTHERS = ["nice", "-n", str(OTHERS_NICE), *PYTEST, *(f"--ignore={directory}" for directory in DIRECTORIES)]


def main(words: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as report:
        brokers = subprocess.Popen([*BROKERS, *words], stdout=report, stderr=subprocess.STDOUT)
        others = 1
        try:
            if len(os.sched_getaffinity(0)) < 2:
                brokers.wait()
            others = subprocess.run([*OTHERS, *words], check=False).returncode
            print("\nreal brokers and Spark, which ran beside all that:", flush=True)
            brokers.wait()
        except KeyboardInterrupt:
            # The same Ctrl-C went to both; pytest takes its brokers down before it ends.
            brokers.wait()
        report.seek(0)
        print(report.read())
    failed = bool(brokers.returncode or others)
    print(f"{'red' if failed else 'green'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
