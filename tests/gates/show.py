"""Runs the gates of one issue and prints one line for each: ``PASS gate 1.3: figure`` or ``FAIL gate 1.3: reason``.

``python -m tests.gates.show ISSUE [GATE ...] [--quick]``, for example ``show 01``, ``show 01 2 3 --quick``; ``make show-01`` calls it.
Exit code 1 when any gate failed. A gate that raises, hangs or does not even import is a FAIL with one line;
where it was is printed below with ``--trace``.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import re
import sys
import time
import traceback
from pathlib import Path

from tests.gates.gate import Scale

_NAME = re.compile(r"^gate_(?P<issue>\d+)_(?P<number>\d+)_\w+$")


def gates_of(issue: int) -> dict[int, str]:
    """The modules of an issue's gates, by number."""
    found: dict[int, str] = {}
    for path in Path(__file__).parent.glob("gate_*.py"):
        match = _NAME.match(path.stem)
        if match and int(match["issue"]) == issue:
            found[int(match["number"])] = f"tests.gates.{path.stem}"
    return dict(sorted(found.items()))


def one_line(error: BaseException) -> str:
    """What went wrong, for people: no traceback, no line breaks."""
    text = " ".join(str(error).split())
    notes = " ".join(" ".join(note.split()) for note in getattr(error, "__notes__", []))
    name = "" if type(error).__name__ == "GateFailed" else f"{type(error).__name__}: "
    return f"{name}{text or 'no message'}{f' ({notes})' if notes else ''}"


def run(issue: int, number: int, module_name: str, scale: Scale, *, trace: bool) -> bool:
    """One gate, one line."""
    began = time.monotonic()
    try:
        module = importlib.import_module(module_name)
        limit_s: float = module.LIMIT_S

        async def within_limit() -> str:
            try:
                async with asyncio.timeout(limit_s):
                    figure: str = await module.run(scale)
                    return figure
            except TimeoutError as error:
                if time.monotonic() - began < limit_s:
                    raise
                raise TimeoutError(f"not ended after {limit_s:.0f} s") from error

        line, passed, where = asyncio.run(within_limit()), True, ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        line, passed, where = one_line(error), False, traceback.format_exc()
    scaled = " (quick)" if scale.quick else ""
    print(f"{'PASS' if passed else 'FAIL'} gate {issue}.{number}{scaled}: {line} [{time.monotonic() - began:.0f} s]", flush=True)
    if where and trace:
        print(where, file=sys.stderr, flush=True)
    return passed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.show", description="Run the gates of one issue.")
    parser.add_argument("issue", help="01, 02, ...")
    parser.add_argument("gates", nargs="*", type=int, help="only these gates")
    parser.add_argument("--quick", action="store_true", help="about a tenth of the counts, for development")
    parser.add_argument("--trace", action="store_true", help="print where a gate failed, on standard error")
    chosen = parser.parse_args(arguments)
    issue = int(chosen.issue)
    found = gates_of(issue)
    wanted: list[int] = chosen.gates or list(found)
    if not found:
        print(f"FAIL gate {issue}: not there yet")
        return 1
    passed = True
    for number in wanted:
        if number not in found:
            print(f"FAIL gate {issue}.{number}: not there yet", flush=True)
            passed = False
            continue
        passed &= run(issue, number, found[number], Scale(chosen.quick), trace=chosen.trace)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
