"""The TLS of a target: what its settings name, loaded in a thread, as files may be on a disk that hangs."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from bridge.port import Misconfigured


async def client_context(data_dir: Path, ca: str, cert: str, key: str) -> ssl.SSLContext:
    """Certificates of the other side are always checked, and that they are of the host that was asked for. Raises Misconfigured."""

    def load() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(data_dir / ca) if ca else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if cert:
            context.load_cert_chain(data_dir / cert, data_dir / key)
        return context

    try:
        return await asyncio.to_thread(load)
    except (OSError, ValueError) as error:
        names = ", ".join(name for name in (ca, cert, key) if name)
        raise Misconfigured(f"the certificates ({names}) cannot be loaded: {error}") from None
