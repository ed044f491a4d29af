"""`holdfast status`: what runs in a data directory, for people and for scripts.

The JSON form is an interface: `{ready, data_dir, listeners: [{gateway, kind, host, port, shared, name, plain}],
processes: [{pid, role, name}], alarms: [{name, kind, cause}], dashboard, notices: [text]}`, and of one of several sites also `{register,
unled, sites: [{site, name, address, up, leads}]}`. Of a unix socket `host` is the path; `dashboard` is Ray's, empty where there is none.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from actors.census import take_census
from actors.sites.standing import standing_of
from cli.paths import data_path


def status(
    data_dir: Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker to look at.")] = "./data",
    as_json: Annotated[bool, typer.Option("--json", help="JSON for scripts.")] = False,
) -> None:
    """Show every process of the broker, and whether it answers."""
    path = data_path(data_dir)
    census, standing = take_census(path), standing_of(path)
    if as_json:
        # By the name that `processes` has for it.
        listeners = [{**dataclasses.asdict(listener), "gateway": listener.owner} for listener in census.listeners]
        processes = [dataclasses.asdict(row) for row in census.processes]
        alarms = [dataclasses.asdict(alarm) for alarm in census.alarms]
        facts = {"ready": census.ready, "data_dir": str(census.data_dir), "listeners": listeners, "processes": processes, "alarms": alarms}
        of_sites = {} if standing is None else dataclasses.asdict(standing)
        print(json.dumps({**facts, "dashboard": census.dashboard, "notices": list(census.notices), **of_sites}))
        return
    print(f"{'ready' if census.ready else 'not ready'}: {census.data_dir}")
    for alarm in census.alarms:
        print(f"  ALARM {alarm.name}: {alarm.cause}")
    for notice in census.notices:
        print(f"  note: {notice}")
    if standing is not None:
        print(f"  {standing.register}")
        for one in standing.sites:
            state = "up" if one.up else "down"
            print(f"  site {one.site} on {one.name!r}, at {one.address}: {state}, leads {_shards(one.leads)}")
        if standing.unled:
            print(f"  nobody is known to lead {_shards(standing.unled)}")
    for listener in census.listeners:
        shared = " (shared)" if listener.shared else ""
        named = "" if listener.name in ("", listener.kind) else f" {listener.name}"
        print(f"  {listener.kind:<4} {listener.place} {listener.owner}{named}{shared}")
    if census.dashboard:
        print(f"  Ray dashboard: {census.dashboard}")
    for row in census.processes:
        print(f"  {row.pid:>8} {row.role:<10} {row.name}")


def _shards(count: int) -> str:
    return f"{count} shard{'s' * (count != 1)}"
