"""The column of the matrix in which a plugin has the word: what it says is in a file of client ids that it denies everything."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from access.asked import Asked
from access.login import Login
from actors.plugin.port import Verdict
from tests.access_paths.cases import PLUGIN, Case, cases

CLASS: Final = "tests.access_paths.plugged:Denying"
ANOTHER_RULE: Final = "version = 1\n[[rule]]\ndeny = ['all']\ntopics = ['nobody/asks/for/this']\n"
"""Says nothing about any case; with it the rules are others, and no former answer counts."""


class Denying:
    """Everybody comes in by the name of his client id, and may do everything but for those in the file."""

    def __init__(self) -> None:
        self._file = Path()
        self._seen: tuple[int, int] | None = None
        self._denied: dict[str, None] = {}

    async def start(self, settings: Mapping[str, object]) -> None:
        self._file = Path(str(settings["denied"]))

    async def login(self, login: Login) -> Verdict:
        return Verdict(True, user=login.client)

    async def may(self, asked: Asked) -> bool:
        found = self._file.stat()
        signature = found.st_ino, found.st_mtime_ns
        if signature != self._seen:
            self._denied = dict.fromkeys(json.loads(self._file.read_text()))
            self._seen = signature
        return asked.client not in self._denied


def plugin_cases() -> tuple[list[Case], list[Case]]:
    """Those of which it says otherwise, and those of which it does when the rules change too: its answers count no more then."""
    alone = cases([PLUGIN])
    return alone, cases([PLUGIN], first=len(alone) + 1)[::3]


def denied(of: Sequence[Case], changed: bool) -> str:
    """What is in its file."""
    return json.dumps([case.subject for case in of if case.denied(changed)])


def settings(directory: Path) -> dict[str, str]:
    """Of a broker that asks it.  No answer is late because the machine is."""
    (directory / "plugins.toml").write_text(f'["{CLASS}"]\ndenied = {json.dumps(str(directory / "denied"))}\n')
    plugin = {
        "kind": "holdfast", "plugins": json.dumps([CLASS]), "config_file": str(directory / "plugins.toml"), "decides": "true",
        "deadline": "20s", "queue_max": "10000",
    }  # fmt: skip
    return {f"access.plugin.{name}": value for name, value in plugin.items()}


def environment() -> dict[str, str]:
    """With which a broker finds the class."""
    root = str(Path(__file__).parents[2])
    return {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
