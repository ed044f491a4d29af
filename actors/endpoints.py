"""Where a process listens for links."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """A unix socket of this machine, or a host and a port of it; never both."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
