"""``python -m benchmarks.storage [--quick] [--shape NAME ...] [--page FILE]``: measures the layouts and writes docs/layouts.md.

--quick takes about a minute and prints the page; the full run takes about a quarter of an hour, and writes it.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.storage.choice import LIMITS, measure
from benchmarks.storage.measured import Folded, Opened, Read, Write
from benchmarks.storage.page import Figures, Reads, render
from benchmarks.storage.rounds import Rivals, rivals
from benchmarks.storage.shapes import SHAPES, Shape
from shards.layouts.registry import layout_named

_ROOT = Path(__file__).resolve().parent.parent.parent
_LARGE_SHARE = 0.02
_SHOWN = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")


def measure_shape(shape: Shape, share: float, rounds: int) -> Figures:
    """share: of the full number of messages; large ones are fewer."""
    if shape.body_bytes > 4096:
        share *= _LARGE_SHARE
    sizes = {1: int(5000 * share), 10: int(20_000 * share), 100: int(50_000 * share), 1000: int(50_000 * share)}
    with rivals(_SHOWN, shape.name) as both:
        # Those of 100 first: what is read below are the first messages.
        order = (100, 1000, 10, 1)
        writes = {commit: both.rounds(Write, rounds, "write", max(sizes[commit], commit), commit, 0) for commit in order}
        limit = max(1000, int(100_000 * share))
        everything = both.ask(Read, "read", shape.everything.decode(), 100, limit)
        small = both.ask(Read, "read", shape.everything.decode(), 5, limit // 5)
        plus_one = both.ask(Read, "read", shape.plus_one.decode(), 100, limit) if shape.plus_one else []
        plus_two = both.ask(Read, "read", shape.plus_two.decode(), 100, limit) if shape.plus_two else []
        samples = max(50, int(1000 * share))
        one = both.ask(Read, "ones", samples) if shape.one else []
        folded = both.ask(Folded, "fold")
        one_folded = both.ask(Read, "ones", samples) if shape.one else []
        opened = both.ask(Opened, "reopen")
        cold = both.ask(Read, "cold", 50) if shape.one else []
    with rivals(_SHOWN, shape.name, "--gc") as both:
        default_gc = _default_gc(both, rounds, max(sizes[100], 100))
    messages = sum(rounds * max(size, commit) for commit, size in sizes.items())
    return Figures(shape, messages, writes, default_gc, Reads(everything, small, plus_one, plus_two, one, one_folded, cold), folded, opened)


def _default_gc(both: Rivals, rounds: int, messages: int) -> list[list[Write]]:
    return both.rounds(Write, max(1, rounds // 2), "write", messages, 100, 0)


def about() -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=False).stdout.strip()
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ""
    )
    now = datetime.now(UTC).strftime("%Y-%m-%d")
    cores, load = os.cpu_count() or 1, os.getloadavg()[2]
    return (
        f"Measured {now} at commit {commit or 'unknown'}, Python {platform.python_version()}, {cores} cores of "
        f"{model or platform.machine()}, with a load of {load:.1f} in the quarter of an hour before the end: ratios say more than figures."
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description="Measure the layouts of the store.")
    parser.add_argument("--quick", action="store_true", help="about a minute, and print instead of writing")
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES), help="only these shapes, and print instead of writing")
    parser.add_argument("--page", type=Path, default=_ROOT / "docs" / "layouts.md", help="where to write")
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the full number of messages of the shapes; the choice is always measured in full"
    )
    parser.add_argument("--rounds", type=int, default=4, help="turns of each layout")
    chosen = parser.parse_args(arguments)
    share, rounds = (0.02, 1) if chosen.quick else (chosen.share, chosen.rounds)
    shapes = [SHAPES[name] for name in chosen.shape or SHAPES]
    figures = []
    for shape in shapes:
        print(f"{shape.name}: {shape.what} ...", file=sys.stderr, flush=True)
        figures.append(measure_shape(shape, share, rounds))
    print("the choice ...", file=sys.stderr, flush=True)
    choice = {} if chosen.shape else {layout: measure(layout, 0.1 if chosen.quick else 1.0) for layout in LIMITS}
    page = render(about(), layout_named("auto"), choice, figures, _SHOWN)
    if chosen.quick or chosen.shape:
        print(page)
    else:
        chosen.page.write_text(page)
        print(f"wrote {chosen.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
