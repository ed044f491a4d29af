"""What lies at the places of secrets that settings name, as the processes of a run get it: by one file that only their user may read.

Read where the configuration is read (config.load.secrets), and nowhere else, so that all of them have the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from actors.topology import write_whole

NAME: Final = "secrets.json"


def packed(secrets: Mapping[str, bytes]) -> dict[str, str]:
    """As JSON can carry them."""
    return {place: base64.b64encode(secret).decode() for place, secret in secrets.items()}


def unpacked(secrets: Mapping[str, str]) -> dict[str, bytes]:
    return {place: base64.b64decode(secret) for place, secret in secrets.items()}


def write_secrets(run_dir: Path, secrets: Mapping[str, str]) -> None:
    """secrets: packed ones."""
    write_whole(run_dir / NAME, json.dumps(secrets))


def read_secrets(run_dir: Path) -> dict[str, bytes]:
    """By the place, as the setting has it."""
    try:
        found = json.loads((run_dir / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return unpacked(found)
