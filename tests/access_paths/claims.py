"""Tokens of clients whose rights are claims, and the settings of a broker that takes them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import jwt

LONG_S: Final = 3600.0
_SECRET: Final = "a secret of a test, which opens nothing else"


def settings(directory: Path) -> dict[str, str]:
    """Tokens end when they say so, without a leeway: that is when a right is taken away."""
    secret = directory / "token-secret"
    secret.write_text(_SECRET)
    secret.chmod(0o600)
    keys = {"keys": f"file://{secret}", "algorithms": '["HS256"]', "grants": "grants", "leeway": "0s"}
    return {f"access.jwt.{name}": value for name, value in keys.items()}


def token(user: str, grants: Mapping[str, Sequence[str]], ends_in_s: float = LONG_S) -> bytes:
    """What goes into the password of CONNECT."""
    claims = {"sub": user, "exp": time.time() + ends_in_s, "grants": {right: list(filters) for right, filters in grants.items()}}
    return jwt.encode(claims, _SECRET, "HS256").encode()
