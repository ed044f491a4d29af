"""Gate 1 of issue 6: the table of parity is complete, and every row is green.

`tests/parity` says that it is complete; then every test that a row names is run, each once, and a row is green when all of its tests have
passed: not failed, and not skipped.
"""

from __future__ import annotations

import asyncio
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.broker.programs import run_program
from tests.gates.gate import GateFailed, Scale
from tests.parity.table import Row, rows

LIMIT_S = 3_600
PART_S = 1_700.0
SHOWN = 5
SLOW = ("tests/broker/", "tests/pipeline/", "tests/lake/")
"""Where tests start brokers or Spark."""
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"


async def run(scale: Scale) -> str:
    table = rows()
    await run_tests("the table of parity", ["tests/parity"])
    wanted = sorted({test for row in table for test in row.tests})
    if scale.quick:
        wanted = [test for test in wanted if not test.startswith(SLOW)]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for part in (False, True):
        tests = [test for test in wanted if test.startswith(SLOW) is part]
        if tests:
            for test, counts in (await run_tests("tests of rows", tests)).items():
                found[test] += counts
    chosen = [row for row in table if all(test in wanted for test in row.tests)]
    red = [f"{row} ({why})" for row in chosen if (why := _why_red(row, found))]
    kinds = Counter(row.kind for row in chosen)
    figure = f"{', '.join(f'{count} {kind}' for kind, count in kinds.items())}: {len(chosen) - len(red)} of {len(chosen)} rows green"
    ran = sum((counts.total() for counts in found.values()), 0)
    files = len({test.partition("::")[0] for test in wanted})
    if red:
        raise GateFailed(f"{figure}; red: {'; '.join(red[:SHOWN])}")
    return f"{figure}, by {ran} tests in {files} files"


def _why_red(row: Row, found: dict[str, Counter[str]]) -> str:
    """Empty: it is green."""
    for test in row.tests:
        counts = found[test]
        if counts[FAILED] or counts[SKIPPED] or not counts[PASSED]:
            return f"{test}: {', '.join(f'{count} {what}' for what, count in counts.items()) or 'did not run'}"
    return ""


async def run_tests(what: str, tests: Iterable[str]) -> dict[str, Counter[str]]:
    """What came of each, by `file::name`, whatever its parameters."""
    with TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
        ran = await run_program(what, words, PART_S)
        if ran.code not in (0, 1) or not report.exists():
            raise GateFailed(f"{what}: pytest ended with {ran.code}: {_last_words(ran.out)}")
        found = await asyncio.to_thread(outcomes, report)
    if what == "the table of parity" and ran.code:
        wrong = [test for test, counts in found.items() if counts[FAILED]]
        raise GateFailed(f"{what} is not complete: {', '.join(wrong)}")
    return found


def _last_words(out: bytes) -> str:
    return " ".join(out.decode(errors="replace").split())[-300:]


def outcomes(report: Path) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = FAILED if kinds & {"failure", "error"} else SKIPPED if "skipped" in kinds else PASSED
        file = case.get("classname", "").replace(".", "/") + ".py"
        found[f"{file}::{case.get('name', '').partition('[')[0]}"][outcome] += 1
    return found
