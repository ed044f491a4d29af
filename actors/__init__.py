"""Processes: the Ray actors, the links between them, the launcher that keeps them alive.

The only floor that knows Ray. Everything that decides something lives on the floors below.

Always holds: every floor that is imported here comes from the directory this package lies in. One of them is called
`config`, and a worker whose path has another `config` in front would otherwise fail much later and much more strangely.

structlog is imported here without rich, which it takes with it where that is installed to colour a terminal that none of our processes
has: 5 MB and a tenth of a second of processor time for each of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

FLOORS = ("config", "mqtt", "shards", "sessions", "gateway")
ROOT = Path(__file__).resolve().parent.parent


class WrongFloor(ImportError):
    """A package of another distribution took the name of one of our floors."""


def check_floors(root: Path, names: tuple[str, ...] = FLOORS) -> None:
    """Raise WrongFloor unless each of the named packages would be imported from `root`."""
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise WrongFloor(f"the package '{name}' was not found; it should lie in {root}")
        where = Path(spec.origin).resolve().parent if spec.origin else None
        if where != root / name:
            found = where or ", ".join(spec.submodule_search_locations or ["a place without a file"])
            raise WrongFloor(
                f"the package '{name}' would be imported from {found}, it should be {root / name}; take the other one off the path"
            )


def import_structlog() -> None:
    """Without rich. Whoever wants rich, as the command line does for its help, still gets it afterwards."""
    if {"structlog", "rich"} & sys.modules.keys():
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # how Python is told that there is no such module
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


check_floors(ROOT)
import_structlog()
