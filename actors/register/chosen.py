"""The register that the settings ask for: etcd where there are endpoints, else the file of this site."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from actors.register.local import open_register
from config.register import Register as Settings
from shards.replication.register import Register


def register_of(settings: Settings, directory: Path, secrets: Mapping[str, bytes]) -> Register:
    """directory: for the file.  secrets: what lies at the places that settings name (config.load.secrets).

    Raises RegisterMistake, and what open_register raises."""
    if not settings.endpoints:
        return open_register(directory)
    # Only who has etcd pays for loading an HTTP client.
    from actors.register.etcd import EtcdRegister, User
    from actors.register.etcd_http import Tls

    tls = Tls(settings.tls.ca, settings.tls.cert, settings.tls.key) if settings.endpoints[0].startswith("https://") else None
    user = User(settings.username, secrets[settings.password].decode()) if settings.username else None
    return EtcdRegister(settings.endpoints, tls, user, settings.request_timeout / 1000)
