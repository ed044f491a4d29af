"""How the driver looks after the controller: has it begin, and makes it anew when Ray has given it up.

Always holds: a look that fails is not the last one. Without it a controller that Ray has given up would stay away, and nobody would say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from actors.controller import Deployment
from actors.ports import Gone, Unavailable

BEGIN_S: Final = 60.0
ROUND_S: Final = 5.0
ANSWER_S: Final = 5.0
ASK_AGAIN_S: Final = 0.2

log = structlog.get_logger(__name__)


class Watch:
    """begun: called whenever the controller has begun. pause: seconds between two looks, and after what Ray was not expected to say."""

    def __init__(self, deployment: Deployment, begun: Callable[[], None], pause: float = ROUND_S) -> None:
        self._deployment = deployment
        self._begun = begun
        self._pause = pause
        self.controller = deployment.create("controller", 0)

    async def run(self) -> NoReturn:
        while True:
            try:
                await self._look()
            except Unavailable as error:
                log.warning("controller.unavailable", reason=str(error))
                await asyncio.sleep(min(ASK_AGAIN_S, self._pause))
            except Exception:  # Of Ray not all words are known; the broker serves meanwhile.
                log.error("controller.not_looked_after", exc_info=True)
                await asyncio.sleep(self._pause)

    async def _look(self) -> None:
        try:
            await self.controller.begin(BEGIN_S)
            self._begun()
            await asyncio.sleep(self._pause)
            await self.controller.health(ANSWER_S)
        except Gone as error:
            log.error("controller.gone", reason=str(error))
            self.controller = self._deployment.create("controller", 0)
