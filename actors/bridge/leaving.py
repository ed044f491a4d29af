"""What a bridge inwards leaves behind at the other broker when it is removed: its session there is ended, if that broker can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from actors.bridge.standing import read_standing
from bridge.port import Context, Misconfigured, Unavailable
from bridge.sources.mqtt import Source
from config.bridges import Bridge

WITHIN_S: Final = 5.0


async def end_session(settings: Bridge, name: str, data_dir: Path, state_dir: Path, secret: Callable[[str], bytes]) -> str:
    """Why the session may still be there, with what waits in it; empty: it is not."""
    standing = await asyncio.to_thread(read_standing, state_dir)
    if standing is None:
        return f"whether it has a session at {settings.mqtt.url} is not known here"
    mqtt = settings.mqtt.model_copy(update={"client_id": standing.client})
    context = Context(name, 0, 1, "", data_dir, state_dir, secret)
    source = Source(mqtt, context, None, receive_max=1, packet_bytes_max=1 << 20)
    try:
        async with asyncio.timeout(WITHIN_S):
            await source.end_session()
    except (Unavailable, Misconfigured) as error:
        return f"its session {standing.client} is still there: {error}"
    except TimeoutError:
        return f"its session {standing.client} is still there: no answer from {mqtt.url} within {WITHIN_S:.0f} s"
    finally:
        await source.close()
    return ""
