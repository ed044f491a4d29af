"""Settings that are declared and that nothing honours yet: each takes its default and nothing else, so that none is a promise.

Whoever builds what reads one takes its line away here, and then a test (tests/house/test_settings.py) wants it read.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_UNBUILT: tuple[str, ...] = ()


def is_unbuilt(key: str) -> bool:
    """Whether a setting with this key takes its default only; of a listener that has a name of its own as of NAME."""
    if key.startswith("listeners.") and not key.startswith("listeners.tcp."):
        _, _, rest = key.removeprefix("listeners.").partition(".")
        key = f"listeners.NAME.{rest}"
    return any(fnmatchcase(key, pattern) for pattern in _UNBUILT)
