"""The register that the settings ask for: etcd where there are endpoints, else a file on one site.

    endpoints                   etcd, asked by each process
    none, and several sites     the file of the site at `register.address`: its site process has it open and serves it at its endpoints, to
                                its own shards too; everybody else asks it over a link
    one site                    nobody opens a register at all

Always holds: keys are below `register.prefix`, in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from actors.access.secrets import read_secrets
from actors.endpoints import Endpoint
from actors.register.linked import LinkedRegister
from actors.register.local import LocalRegister, open_register
from actors.topology import Topology
from actors.wire import Wire
from config.load import from_json
from config.register import Register as Settings
from config.values import Bind
from shards.replication.ports import Outcome
from shards.replication.register import Held, Register, RegisterMistake

DIRECTORY: Final = "register"
"""In the data directory of the site that has the file."""


class Below:
    """A register of which only the keys with one prefix are seen, and without it.  The port of shards.replication.register."""

    def __init__(self, register: Register, prefix: str) -> None:
        self._register = register
        self._prefix = prefix

    async def read(self, key: str) -> Held | None:
        return await self._register.read(self._prefix + key)

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        return await self._register.cas(self._prefix + key, version, new)

    async def list(self, prefix: str) -> dict[str, Held]:
        found = await self._register.list(self._prefix + prefix)
        return {key.removeprefix(self._prefix): held for key, held in found.items()}

    async def close(self) -> None:
        await self._register.close()


def register_of(settings: Settings, directory: Path, secrets: Mapping[str, bytes]) -> Register:
    """Etcd, or the file itself.  directory: for the file.  secrets: what lies at the places that settings name (config.load.secrets).

    Raises RegisterMistake, and what open_register raises."""
    if not settings.endpoints:
        return open_register(directory)
    # Only who has etcd pays for loading an HTTP client.
    from actors.register.etcd import EtcdRegister, User
    from actors.register.etcd_http import Tls

    tls = Tls(settings.tls.ca, settings.tls.cert, settings.tls.key) if settings.endpoints[0].startswith("https://") else None
    user = User(settings.username, secrets[settings.password].decode()) if settings.username else None
    return EtcdRegister(settings.endpoints, tls, user, settings.request_timeout / 1000)


def is_here(topology: Topology, settings: Settings) -> bool:
    """Whether the site process of this site has the file."""
    plan, at = topology.sites, settings.address
    return plan is not None and not settings.endpoints and isinstance(at, Bind) and (at.host, at.port) == (plan.host, plan.port)


def asked_register(topology: Topology, wire: Wire, name: str) -> Below:
    """Of several sites, for every process but the site process of the site that has the file.  name: of the process on links.  On its loop;
    closed by whoever asked for it.

    Raises RegisterMistake."""
    settings = settings_of(topology)
    if settings.endpoints:
        return Below(register_of(settings, Path(), read_secrets(topology.run_dir)), settings.prefix)
    # Unix sockets are plain: this one is of the same machine and user.
    at = Endpoint(path=topology.site_endpoint()) if is_here(topology, settings) else _address(settings)
    linked = LinkedRegister(lambda: at, wire, name, settings.request_timeout / 1000)
    linked.start()
    return Below(linked, settings.prefix)


def owned_register(topology: Topology) -> LocalRegister | None:
    """The file, without a prefix, when this site has it; for its site process.  Raises StoreInUse, StoreFailed, RegisterMistake."""
    return open_register(topology.data_dir / DIRECTORY) if is_here(topology, settings_of(topology)) else None


def settings_of(topology: Topology) -> Settings:
    return from_json(topology.config_json).register


def _address(settings: Settings) -> Endpoint:
    if settings.single_point != "accepted" or not isinstance(settings.address, Bind):
        raise RegisterMistake(
            'several sites need register.endpoints, or register.address with register.single_point = "accepted": nobody knows where the '
            "register is"
        )
    return Endpoint(host=settings.address.host, port=settings.address.port)
