"""What there is to be asked, without anything that runs."""

from __future__ import annotations

import asyncio
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from actors.admin.app import described, make_app
from actors.admin.broker import Broker
from actors.admin.health import Health
from config.load import load
from tests.actors.places import topology_in


@cache
def description() -> dict[str, Any]:
    """As /api-docs has it."""

    async def made() -> dict[str, Any]:
        broker = Broker(topology_in(Path(directory)), load(environ={}))
        health = Health(broker)
        try:
            return described(make_app(broker, health))
        finally:
            await health.stop()
            await broker.close()

    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(made())


def operations() -> list[str]:
    """`GET /path` of each."""
    return [f"{method.upper()} {path}" for path, methods in description()["paths"].items() for method in methods]
