"""Makes requirements/{core,dev,spark}.txt from the ranges of pyproject.toml.

Asks pip to resolve without installing, and writes name and version only: no address of any index, no file, no hash,
so that the pins say what to install and the user's own pip configuration says from where.
dev.txt and spark.txt hold only what comes on top of core.txt, and are resolved together with it.

Keeps the pins there are when they still fit; `--upgrade` resolves afresh.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
# hatchling builds the editable install and editables is what it needs for it; both pinned here, so that
# installing the project never resolves anything in an isolated environment of its own.
BUILD_EXTRAS = ("editables>=0.5,<1",)
HEADER = "# Made by `make lock` from pyproject.toml; do not edit.\n"

Pins = dict[str, str]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(wanted: list[str], constraints: Pins) -> Pins | None:
    """Name and version of all that pip would install for these, or None when it finds no solution."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        limits = Path(scratch) / "constraints.txt"
        limits.write_text("".join(f"{name}=={version}\n" for name, version in constraints.items()))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        done = subprocess.run([*command, "--report", str(report), "-c", str(limits), *wanted], stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            return None
        installs = json.loads(report.read_text())["install"]
    return {canonical(item["metadata"]["name"]): item["metadata"]["version"] for item in installs}


def read(path: Path) -> Pins:
    if not path.exists():
        return {}
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return dict(line.split("==", 1) for line in lines if "==" in line)


def lock(wanted: list[str], kept: Pins, fixed: Pins) -> Pins:
    pins = resolve(wanted, fixed | kept) or resolve(wanted, fixed)
    if pins is None:
        raise SystemExit("the ranges of pyproject.toml have no common solution; pip says why above")
    return pins


def write(path: Path, pins: Pins) -> None:
    path.write_text(HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items())))
    print(f"{path.relative_to(ROOT)}: {len(pins)} packages")


def main() -> None:
    upgrade = "--upgrade" in sys.argv[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    core_ranges = [*project["project"]["dependencies"], *project["build-system"]["requires"], *BUILD_EXTRAS]
    extras = project["project"]["optional-dependencies"]
    old = {name: {} if upgrade else read(REQUIREMENTS / f"{name}.txt") for name in ("core", "dev", "spark")}
    REQUIREMENTS.mkdir(exist_ok=True)
    core = lock(core_ranges, old["core"], {})
    write(REQUIREMENTS / "core.txt", core)
    for name in ("dev", "spark"):
        together = lock([*core_ranges, *extras[name]], old[name], core)
        write(REQUIREMENTS / f"{name}.txt", {key: version for key, version in together.items() if key not in core})


if __name__ == "__main__":
    main()
