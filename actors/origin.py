"""Where a running broker has its configuration from, so that it can be read again: file, environment, command line of its start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from actors.topology import write_whole

NAME = "origin.json"


@dataclass(frozen=True, slots=True)
class Origin:
    """The arguments of `config.load.load` that made it."""

    file: str = ""
    """Absolute; empty: none was named."""
    sets: tuple[str, ...] = ()
    data_dir: str | None = None
    port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the environment only what says settings."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Of what `dataclasses.asdict` made and JSON has carried."""
        return cls(**fields | {"sets": tuple(fields["sets"])})


def write_origin(run_dir: Path, origin: Origin) -> None:
    write_whole(run_dir / NAME, origin.to_json())


def read_origin(run_dir: Path) -> Origin:
    return Origin.from_fields(json.loads((run_dir / NAME).read_text(encoding="utf-8")))
