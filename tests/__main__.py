"""Runs all tests, in three lanes: no two cores are busy with fewer, since whoever starts brokers spends half of their time waiting.

`python -m tests` is `make test`; its words are handed on to every run of pytest. One lane has what starts real brokers, which judges times.
The others come in parts, which make way for it by their niceness, and for each other: what has a clock of its own waits for whoever has
not. Each lane takes the next part when it is through with one, so none stands still while another has much to do. What runs in the last
lane is printed as it goes, a report of each other part when it is complete. With a single core there is one lane.

Whatever hangs ends after ENDS_AFTER_S, as it does at a SIGTERM, with the stacks of its threads: it is told which part was at what.

What failed beside all that is run once more with nothing beside it. Failing again is red; passing is green. Either is named in the last
lines, with why it failed at first: a test that passes then is unsteady, by its own fault or by ours, and somebody has to find which. More
than UNSTEADY_MAX of them are red as they are.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, Timer
from xml.etree import ElementTree

from tests.conftest import STARTS_BROKERS, USES_SPARK

LANES = 3
"""All that Spark is used for within one process has one session of it, so that is one part."""
NOTEBOOK = "tests/pipeline/test_notebook.py"
BROKERS = [*(f"tests/{suite}" for suite in STARTS_BROKERS), NOTEBOOK]
REPLICAS = [
    f"tests/actors/{name}.py"
    for name in ("replica/test_campaign", "replica/test_fail_points", "replica/test_forced", "sites/test_with_replicas")
]
"""Processes of their own, and real time."""
SPARK = [*(f"tests/{suite}" for suite in USES_SPARK), f"--ignore={NOTEBOOK}"]
SEEDS = "tests/sim/test_seeds.py"
FIRST_NICE, OTHERS_NICE, SIMULATED_NICE = 0, 15, 19
APART = [
    (SPARK, OTHERS_NICE),
    (["tests/bridge", "tests/contracts"], OTHERS_NICE),
    (["tests/sim", f"--ignore={SEEDS}"], SIMULATED_NICE),
    (["tests/lives", "tests/fuzz", "tests/replication", "tests/chaos", "tests/benchmarks"], OTHERS_NICE),
    ([SEEDS], SIMULATED_NICE),
]
"""Parts that take some minutes each. What is in none of them is one more, and takes longest."""
UNSTEADY_MAX = 8
ENDS_AFTER_S = 4500.0
"""Less than CI waits (.ci/run): only here is known what was under way."""
PASSED, FAILED, NONE_FOUND = 0, 1, 5
"""Exit codes of pytest."""
_REPORT = "report.xml"
_WHY_LETTERS = 400


@dataclass(slots=True)
class Part:
    """One run of pytest: made -> running -> ended, by itself or by `end`. cache: where it leaves what failed."""

    what: str
    words: Sequence[str]
    cache: Path
    nice: int = FIRST_NICE
    process: subprocess.Popen[bytes] | None = None
    ended: bool = False
    took_s: float = 0.0
    came_to: str = ""
    """The file of tests that it was at, where its report is known."""

    def run(self, output: int | None = None) -> int:
        """Its exit code. output: a file descriptor."""
        if self.ended:
            return -signal.SIGABRT
        began = time.monotonic()
        self.process = subprocess.Popen(["nice", "-n", str(self.nice), *pytest(self.cache), *self.words], stdout=output, stderr=output)
        code = self.process.wait()
        self.took_s = time.monotonic() - began
        return code

    def end(self) -> None:
        """From any thread, also before it runs. Python's fault handler, which pytest turns on, says where each thread is."""
        self.ended = True
        if self.process is not None:
            self.process.send_signal(signal.SIGABRT)


def pytest(cache: Path) -> list[str]:
    """The command that runs pytest and leaves in `cache` what failed, and why."""
    return [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", f"--junitxml={cache / _REPORT}"]


def failed(cache: Path) -> list[str]:
    """Node ids of the tests that failed in the run that left `cache`."""
    path = cache / "v/cache/lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def reasons(cache: Path) -> list[str]:
    """Of what failed in the run that left `cache`: which test, and the beginning of why."""
    found: list[str] = []
    for case in ElementTree.parse(cache / _REPORT).getroot().iter("testcase"):
        for failure in (*case.findall("failure"), *case.findall("error")):
            why = " ".join(failure.get("message", "").split())[:_WHY_LETTERS]
            found.append(f"{case.get('classname')}::{case.get('name')}: {why}")
    return sorted(found)


def parts(words: Sequence[str], directory: Path) -> tuple[Part, list[Part]]:
    """The real brokers, and the others in the order in which they are to begin. words: for each of them."""
    brokers = _part("real brokers", BROKERS, words, directory)
    replicas = _part(" ".join(REPLICAS), REPLICAS, words, directory)
    apart = [_part(" ".join(names), names, words, directory, nice) for names, nice in APART]
    named = {name.removeprefix("--ignore=") for names in (BROKERS, REPLICAS, *(names for names, _ in APART)) for name in names}
    rest = _part("what is in no other part", [f"--ignore={name}" for name in sorted(named)], words, directory, OTHERS_NICE)
    return brokers, [replicas, rest, *apart]


def _part(what: str, names: Sequence[str], words: Sequence[str], directory: Path, nice: int = FIRST_NICE) -> Part:
    return Part(what, [*names, *words], directory / what.replace("/", "_"), nice)


def first_look(brokers: Part, others: Sequence[Part], ends_after_s: float = ENDS_AFTER_S) -> list[int]:
    """All of them, one at a time in each lane. Returns their exit codes."""
    waiting = deque(others)
    limit = Timer(ends_after_s, end, [[brokers, *others]])
    limit.daemon = True
    limit.start()
    codes: list[int] = []

    def quietly(part: Part | None) -> None:
        while part is not None:
            with tempfile.TemporaryFile("w+") as report:
                codes.append(part.run(report.fileno()))
                report.seek(0)
                text = report.read()
                part.came_to = next((line.strip() for line in reversed(text.splitlines()) if line.startswith("tests/")), "")
                print(f"\n{part.what}, which ran beside all that, {part.took_s:.0f} s:\n{text}", flush=True)
            part = _next(waiting)

    several = len(os.sched_getaffinity(0)) > 1
    beside = [Thread(target=quietly, args=[part]) for part in (brokers, *(_next(waiting) for _ in range(LANES - 2 if several else 0)))]
    for lane in beside:
        lane.start()
        if not several:
            lane.join()
    try:
        while (part := _next(waiting)) is not None:
            print(f"\n{part.what}:", flush=True)
            codes.append(part.run())
            print(f"{part.what}: {part.took_s:.0f} s", flush=True)
    except KeyboardInterrupt:
        # The same Ctrl-C went to all; pytest takes its brokers down before it ends.
        waiting.clear()
    for lane in beside:
        lane.join()
    limit.cancel()
    return codes


def end(these: Sequence[Part]) -> None:
    for part in these:
        part.end()


def _next(waiting: deque[Part]) -> Part | None:
    """Asked by each lane, whenever it is through with what it had."""
    try:
        return waiting.popleft()
    except IndexError:
        return None


def second_look(caches: list[Path]) -> tuple[int, list[str]]:
    """Runs again, one after the other, what failed in the runs that left `caches`. Returns an exit code, and why each failed at first."""
    suspects = [name for cache in caches for name in failed(cache)]
    if not 0 < len(suspects) <= UNSTEADY_MAX:
        return 1, []
    print(f"\nonce more, with nothing beside them: {' '.join(suspects)}", flush=True)
    # The second run leaves a report of its own.
    whys = [why for cache in caches if failed(cache) for why in reasons(cache)]
    codes = [subprocess.run([*pytest(cache), *failed(cache)], check=False).returncode for cache in caches if failed(cache)]
    return int(any(codes)), whys


def verdict(codes: Sequence[int], expected: int, caches: list[Path]) -> tuple[int, list[str]]:
    """An exit code, and why what failed beside others did. A part with none of the tests that were asked for is as good as passed, if not
    all are so."""
    if len(codes) < expected or not set(codes) <= {PASSED, FAILED, NONE_FOUND} or set(codes) == {NONE_FOUND}:
        return 1, []
    return second_look(caches) if FAILED in codes else (0, [])


def main(words: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-tests-") as directory:
        brokers, others = parts(words, Path(directory))
        signal.signal(signal.SIGTERM, lambda *_: end([brokers, *others]))
        codes = first_look(brokers, others)
        result, whys = verdict(codes, 1 + len(others), [part.cache for part in (brokers, *others)])
    for part in (brokers, *others):
        if part.ended:
            print(f"{part.what}: ended before it was through {f'with {part.came_to}' if part.came_to else ''}")
    for why in whys:
        print(f"{'failed beside others, and some alone' if result else 'unsteady, failed beside others and passed alone'}: {why}")
    print(f"{'red' if result else 'green'} after {time.monotonic() - began:.0f} s")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
