"""Reads results files: a JSON array with one record a line, as `benchmarks.bench` writes them.

A key that the file lacks has its default, so that a file of an older commit can still be compared; one that is no longer known is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks import meter
from benchmarks.load import Probe, Record
from benchmarks.outcome import Cost, Result, Spread
from benchmarks.scenarios import Options
from benchmarks.workers import RunFailed


def read_results(path: Path) -> list[Record]:
    """Raises RunFailed for a file that is none."""
    try:
        return [read_record(raw) for raw in json.loads(path.read_text())]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFailed(f"{path} is no results file: {type(error).__name__} {error}") from error


def read_record(raw: Mapping[str, Any]) -> Record:
    """One record of what `Record.line` writes."""
    kept = _kept(Record, raw)
    result = _kept(Result, raw["result"])
    for name in ("ack_ms", "end_to_end_ms"):
        result[name] = Spread(**result[name]) if result.get(name) else None
    for name in ("cost", "drain_cost"):
        result[name] = {group: Cost(**cost) for group, cost in result.get(name, {}).items()}
    result["stories"] = tuple(result.get("stories", ()))
    return Record(
        **kept
        | {
            "machine": meter.Machine(**raw["machine"]),
            "options": Options(**_kept(Options, raw["options"])),
            "fdatasync_p50_ms": Probe(**raw["fdatasync_p50_ms"]),
            "result": Result(**result),
        }
    )


def _kept(kind: type[Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(kind)}
    return {name: value for name, value in raw.items() if name in known}


def unclean(records: Sequence[Record], broker: str = "holdfast") -> list[str]:
    """A sentence for each run of a broker in which something was lost, doubled, out of order, misrouted or refused."""
    out = []
    for record in records:
        if record.broker == broker and not record.result.clean:
            names = ("lost", "duplicated", "out_of_order", "misrouted", "refused")
            wrong = [f"{getattr(record.result, name)} {name}" for name in names if getattr(record.result, name)]
            out.append(f"{record.result.scenario} {record.variant}".strip() + f": {', '.join([*wrong, *record.result.stories])}")
    return out
