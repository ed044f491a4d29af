"""Keeps what is in force abreast of the files that it was made of; run by the controller.

A file that is wrong is an alarm, which `holdfast status` shows, for as long as it is wrong.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from actors.access.publishing import Publisher, read_bundle, wants_access
from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.snapshot import Watched, alone, settings_in_force
from actors.topology import Topology
from config.load import from_json
from config.schema import Config

EVERY_S: Final = 0.1
ALARM: Final = "access"


class AccessKeeper:
    """Looks at the files ten times a second, which costs two calls of the system; reads those that changed in a thread."""

    def __init__(self, topology: Topology, name: str, settings: Watched) -> None:
        """settings: what whoever runs this looks at too; name: of that process."""
        self._topology = topology
        self._name = name
        self._settings = settings
        self._publisher = Publisher(topology.run_dir)
        self._problems: tuple[str, ...] | None = None
        """As they were told; None: nothing was, and a former controller may have left an alarm."""
        self._version = -1
        self._config: Config | None = None

    async def run(self) -> None:
        while True:
            if self._is_due():
                try:
                    await asyncio.to_thread(self.publish)
                except OSError as error:
                    # No descriptor, no room: the files are there next time.
                    structlog.get_logger().error("access.not_published", cause=str(error))
                    self._config = None
                except Exception:
                    # Whatever it is, files that change later have to be seen.
                    structlog.get_logger().error("access.not_published", exc_info=True)
                    self._config = None
            await asyncio.sleep(EVERY_S)

    def publish(self) -> None:
        """Put in force what the files say now, by the settings in force.  Raises OSError: nothing was changed, and it is due again."""
        run_dir = self._topology.run_dir
        with alone(run_dir):
            config = settings_in_force(self._topology)
            former = read_bundle(run_dir)
            if former is None and not wants_access(config):
                return
            bundle = self._publisher.put_in_force(self._publisher.draft(config))
        if former is None or bundle.version != former.version:
            structlog.get_logger().info("access.changed", version=bundle.version)
        self._tell(bundle.problems)

    def _is_due(self) -> bool:
        snapshot = self._settings.snapshot
        if self._config is None or snapshot.version != self._version:
            self._version, self._config = snapshot.version, from_json(snapshot.config)
            return True
        return self._publisher.changed(self._config)

    def _tell(self, problems: tuple[str, ...]) -> None:
        if problems == self._problems:
            return
        if problems:
            cause = f"{'; '.join(problems)}; what was in force before goes on"
            structlog.get_logger().error("access.refused", cause=cause)
            raise_alarm(self._topology.run_dir, Alarm(self._name, ALARM, cause))
        else:
            clear_alarm(self._topology.run_dir, self._name, ALARM)
        self._problems = problems
