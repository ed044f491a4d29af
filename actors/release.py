"""Which release this is, as the package says."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "unknown"
