"""Names from outside, as a log has them."""

from __future__ import annotations

BYTES_MAX = 256


def shown(name: str | None) -> str | None:
    """Cut, and with everything that does not print escaped."""
    if name is None:
        return None
    cut = name.encode(errors="replace")[:BYTES_MAX].decode(errors="ignore")
    return cut if cut.isprintable() else ascii(cut)[1:-1]
