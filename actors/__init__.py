"""Processes: the Ray actors, the links between them, the launcher that keeps them alive.

The only floor that knows Ray. Everything that decides something lives on the floors below.

Always holds: every floor that is imported here comes from the directory this package lies in. One of them is called
`config`, and a worker whose path has another `config` in front would otherwise fail much later and much more strangely.
"""

from __future__ import annotations

import importlib.util
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


check_floors(ROOT)
