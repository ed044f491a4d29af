"""`holdfast status`: what runs in a data directory, for people and for scripts.

The JSON form is an interface: `{ready, data_dir, listeners: [{gateway, kind, host, port, shared, name, plain}],
processes: [{pid, role, name}], alarms: [{name, kind, cause}], dashboard}`. Of a unix socket `host` is the path; `dashboard` is Ray's, empty
where there is none.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from actors.census import take_census
from cli.paths import data_path


def status(
    data_dir: Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker to look at.")] = "./data",
    as_json: Annotated[bool, typer.Option("--json", help="JSON for scripts.")] = False,
) -> None:
    """Show every process of the broker, and whether it answers."""
    census = take_census(data_path(data_dir))
    if as_json:
        # By the name that `processes` has for it.
        listeners = [{**dataclasses.asdict(listener), "gateway": listener.owner} for listener in census.listeners]
        processes = [dataclasses.asdict(row) for row in census.processes]
        alarms = [dataclasses.asdict(alarm) for alarm in census.alarms]
        facts = {"ready": census.ready, "data_dir": str(census.data_dir), "listeners": listeners, "processes": processes, "alarms": alarms}
        print(json.dumps({**facts, "dashboard": census.dashboard}))
        return
    print(f"{'ready' if census.ready else 'not ready'}: {census.data_dir}")
    for alarm in census.alarms:
        print(f"  ALARM {alarm.name}: {alarm.cause}")
    for listener in census.listeners:
        shared = " (shared)" if listener.shared else ""
        named = "" if listener.name in ("", listener.kind) else f" {listener.name}"
        print(f"  {listener.kind:<4} {listener.place} {listener.owner}{named}{shared}")
    if census.dashboard:
        print(f"  Ray dashboard: {census.dashboard}")
    for row in census.processes:
        print(f"  {row.pid:>8} {row.role:<10} {row.name}")
