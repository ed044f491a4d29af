"""What the desk needs of the settings, and of what was found in the files they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from access.tokens import TokenOptions


@dataclass(frozen=True, slots=True)
class PasswordSettings:
    """file: "" is none.  sha256: of the version of it that is in force; "" is none, and then no password is right."""

    file: str = ""
    sha256: str = ""
    threads: int = 1
    queue_max: int = 1_000
    remember_s: float = 3_600
    user_prefix: str = ""


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """url: where a set of keys is fetched; else data is the set, or a secret.  An unreadable one is no data: then no token counts."""

    options: TokenOptions
    url: str = ""
    data: bytes = field(default=b"", repr=False)
    refresh_s: float = 300
    stale_max_s: float = 3_600


@dataclass(frozen=True, slots=True)
class PluginSettings:
    deadline_s: float = 2
    queue_max: int = 1_000
    user_prefix: str = ""


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """tokens, plugin None: there are none.  anonymous: by listener."""

    passwords: PasswordSettings = PasswordSettings()
    tokens: TokenSettings | None = None
    plugin: PluginSettings | None = None
    certificate_prefix: str = ""
    anonymous: Mapping[str, str] = field(default_factory=dict)
    deadline_s: float = 5
