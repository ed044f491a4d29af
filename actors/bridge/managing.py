"""Bridges as people manage them, by a command or over HTTP: what they are, how they are, and what is set of them while the broker runs.

What is set is in `bridges.toml` of the data directory, whole or not at all, and put in force as `holdfast reload` does; a setting that
cannot be leaves the file as it was.  The session of a bridge, which is its place in the store, ends with `remove` and in no other way: a
bridge that is only taken out of a file is *left*, and everything is kept for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from actors.access.secrets import read_secrets
from actors.bridge.files import write_durably
from actors.bridge.leaving import end_session
from actors.bridge.runner import STATE_DIR
from actors.bridge.server import STATUS_FILE
from actors.bridge.session import client_id
from actors.inquiry import clients as of_clients
from actors.inquiry import sessions
from actors.inquiry.asking import Asking
from actors.snapshot import settings_in_force
from actors.topology import Topology
from config.bridges import Bridge
from config.dump import literal
from config.load import BRIDGES_FILE
from config.schema import Config
from config.settings import BRIDGES, is_name, setting_of

State = Literal["running", "failing", "paused", "starting", "left"]
FRESH_S: Final = 10.0
STOPPED_WITHIN_S: Final = 15.0
ONLINE_WITHIN_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.1
LOCAL_TYPES: Final = ("jsonl", "parquet", "plugin")
"""Those whose target is this machine itself."""
SECRET_PREFIX: Final = "env:HOLDFAST_BRIDGE_"
_HEADER: Final = "# Written by `holdfast bridge` and by REST; counts more than the file of the configuration.\n"
Tables = dict[str, Any]


class Refused(Exception):
    """It cannot be done, and nothing was changed; sentences, one a line."""


@dataclass(frozen=True, slots=True)
class BridgeInfo:
    """state: running; failing: its target, or what it brings messages from, does not work; paused; starting: it has no session at this
    broker (yet), `error` says why; left: there are no settings of it any more, and everything is kept for it.  breaker: closed, open or
    trying.  error: of its target, or why it does not run.  inflight: messages in its memory.  connections: to the target, or to the other
    broker.  delivered: messages that its target, or inwards this broker, has accepted since it was started; None: it does not run."""

    name: str
    state: State
    direction: Literal["out", "in"] | None
    type: str | None
    filter: str | None
    breaker: str | None
    error: str
    inflight: int
    inflight_bytes: int
    connections: int
    delivered: int | None


# ---------------------------------------------------------------------------------------------------- how they are


def bridges(topology: Topology) -> list[BridgeInfo]:
    """All of them by name, as this site knows them."""
    config = settings_in_force(topology)
    status = _status(topology.run_dir)
    found = {name: _info(name, settings, status.get(name)) for name, settings in config.bridges.items()}
    for name in _kept(topology.data_dir):
        found.setdefault(name, BridgeInfo(name, "left", None, None, None, None, "", 0, 0, 0, None))
    return [found[name] for name in sorted(found)]


def bridge(topology: Topology, name: str) -> BridgeInfo | None:
    return next((each for each in bridges(topology) if each.name == name), None)


def _info(name: str, settings: Bridge, said: Mapping[str, Any] | None) -> BridgeInfo:
    direction, kind, topic_filter = settings.direction, settings.type, settings.filter
    if settings.paused or said is None:
        return BridgeInfo(name, "paused" if settings.paused else "starting", direction, kind, topic_filter, None, "", 0, 0, 0, None)
    error = said["complaint"] or said["last_error"]
    return BridgeInfo(
        name, _state(direction, said), direction, kind, topic_filter, said["breaker"], error, said["inflight"], said["inflight_bytes"],
        said["connections"], said["delivered"],
    )  # fmt: skip


def _state(direction: str, said: Mapping[str, Any]) -> State:
    if direction == "in":
        # Its two connections begin and end together.
        return "running" if said["online"] else "failing" if said["failures"] and not said["complaint"] else "starting"
    return "starting" if not said["online"] else "failing" if said["failures"] else "running"


def _status(run_dir: Path) -> dict[str, Any]:
    """By name, of those that run; nothing when the process that says so is gone."""
    try:
        said = json.loads((run_dir / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found: dict[str, Any] = said["bridges"] if time.time() - said["at"] < FRESH_S else {}
    return found


def _kept(data_dir: Path) -> list[str]:
    """Names of the bridges that have had a session."""
    try:
        return [path.name for path in (data_dir / STATE_DIR).iterdir() if path.is_dir() and is_name(path.name)]
    except FileNotFoundError:
        return []


# ---------------------------------------------------------------------------------------------------- what is set


async def add(topology: Topology, name: str, given: Mapping[str, object], *, from_afar: bool = False) -> None:
    """given: settings by their keys, below the name of the bridge.  from_afar: asked by somebody who may have no account on this machine.
    Raises Refused."""
    if from_afar:
        _check_from_afar(given)
    if not is_name(name):
        raise Refused("the name of a bridge takes 1 to 64 letters, digits, _ and -.")
    if name in settings_in_force(topology).bridges:
        raise Refused(f"there is a bridge {name} already.")

    def adds(tables: Tables) -> None:
        table: Tables = {}
        for key, value in given.items():
            _put(table, key, value)
        tables[name] = table

    await asyncio.to_thread(change, topology, adds)


def _check_from_afar(given: Mapping[str, object]) -> None:
    """A key of the API is no account on this machine: it writes no files, runs no code, and reads no secrets but those meant for it."""
    if given.get("type", "jsonl") in LOCAL_TYPES:
        raise Refused(f"a bridge of type {', '.join(LOCAL_TYPES)} is made by a command on the broker's machine, not over HTTP.")
    for key, value in given.items():
        found = setting_of(f"{BRIDGES.prefix}x.{key}")
        if found is not None and found.kind == "secret" and value and not str(value).startswith(SECRET_PREFIX):
            raise Refused(
                f"{key}: over HTTP a secret lies in a variable of the broker's environment whose name begins with "
                f"{SECRET_PREFIX.removeprefix('env:')}."
            )


async def set_paused(topology: Topology, name: str, paused: bool) -> None:
    """Raises Refused."""
    if name not in settings_in_force(topology).bridges:
        raise Refused(f"there is no bridge {name}.")
    await asyncio.to_thread(change, topology, lambda tables: tables.setdefault(name, {}).update(paused=paused))
    if paused:
        await _stopped(topology, name)


@dataclass(frozen=True, slots=True)
class Removed:
    """session_ended: there was a session here.  left_there: inwards: why there may still be one at the other broker, or empty."""

    session_ended: bool
    left_there: str = ""


async def remove(asking: Asking, name: str) -> Removed:
    """Its settings, its session with everything that is kept for it, here and at another broker, its files.  Raises Refused."""
    topology = asking.topology
    settings = settings_in_force(topology).bridges.get(name)
    # With its settings the places of its secrets go.
    secrets = await asyncio.to_thread(read_secrets, topology.run_dir)
    known = settings is not None
    if known:
        await asyncio.to_thread(change, topology, lambda tables: tables.pop(name, None), lambda config: _must_be_gone(config, name))
        await _stopped(topology, name)
    client = client_id(name)
    session, missing = await sessions.find(asking, client)
    if session is None and missing:
        raise Refused(f"{' and '.join(missing)} did not answer: the settings of {name} are gone, what is kept for it is not; try again.")
    if session is None and not known:
        raise Refused(f"there is no bridge {name}.")
    state_dir, left_there = topology.data_dir / STATE_DIR / name, ""
    if settings is not None and settings.direction == "in":
        left_there = await end_session(settings, name, topology.data_dir, state_dir, lambda place: secrets[place])
    await asyncio.to_thread(shutil.rmtree, state_dir, ignore_errors=True)
    if session is None:
        return Removed(False, left_there)
    await of_clients.kick(asking, client)
    return Removed(await asking.destroy(client.encode(), session.session_id), left_there)


def _must_be_gone(config: Config, name: str) -> None:
    if name in config.bridges:
        raise Refused(f"bridge {name} stands in the configuration of the broker itself: take it out there, reload, and then remove it.")


def elsewhere(topology: Topology, name: str) -> str:
    """Of a bridge inwards where its messages wait, in words; empty: it is none."""
    settings = settings_in_force(topology).bridges.get(name)
    return f"at {settings.mqtt.url}, which alone knows how many" if settings is not None and settings.direction == "in" else ""


async def online(topology: Topology, name: str, within_s: float = ONLINE_WITHIN_S) -> bool:
    """Whether it has come to have its session, inwards at the other broker: from then on everything is kept for it."""
    return await _until(lambda: bool(_status(topology.run_dir).get(name, {}).get("online")), within_s)


async def _stopped(topology: Topology, name: str) -> None:
    await _until(lambda: name not in _status(topology.run_dir), STOPPED_WITHIN_S)


async def _until(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_EVERY_S)
    return True


def change(topology: Topology, edit: Callable[[Tables], object], check: Callable[[Config], None] = lambda _: None) -> None:
    """Write what commands have set otherwise, and put it in force.  check: of what is in force then.  Raises Refused, and then nothing was
    changed."""
    path = topology.data_dir / BRIDGES_FILE
    with _alone(topology.data_dir):
        before = path.read_bytes() if path.exists() else None
        tables: Tables = tomllib.loads(before.decode()).get("bridges", {}) if before is not None else {}
        edit(tables)
        write_durably(path, text_of(tables).encode() if tables else None)
        try:
            _put_in_force(topology)
            check(settings_in_force(topology))
        except Refused:
            write_durably(path, before)
            _put_in_force(topology)
            raise


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    descriptor = os.open(data_dir / f"{BRIDGES_FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _put_in_force(topology: Topology) -> None:
    # A process of its own, as it has a log of its own.
    command = [sys.executable, "-P", "-m", "actors.reload", str(topology.run_dir), "bridges"]
    done = subprocess.run(command, cwd=topology.data_dir, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr.strip() or "the configuration cannot be put in force; see reload.log.")


def text_of(tables: Tables) -> str:
    lines = [_HEADER]
    for name, table in tables.items():
        lines += _section(f"bridges.{name}", table)
    return "\n".join(lines) + "\n"


def _section(name: str, table: Tables) -> list[str]:
    own = [f"{key} = {literal(value)}" for key, value in table.items() if not isinstance(value, dict)]
    below = [line for key, value in table.items() if isinstance(value, dict) for line in _section(f"{name}.{key}", value)]
    return [f"[{name}]", *own, "", *below]


def _put(table: Tables, key: str, value: object) -> None:
    *parents, name = key.split(".")
    for parent in parents:
        below = table.setdefault(parent, {})
        if not isinstance(below, dict):
            raise Refused(f"{key}: {parent} is a setting, and no section.")
        table = below
    table[name] = value


def known_key(key: str) -> bool:
    """Whether this is a setting of a bridge."""
    return setting_of(f"{BRIDGES.prefix}x.{key}") is not None
