"""The load generator: `python -m benchmarks.load SCENARIO [options]` runs one scenario and prints one JSON line per run.

Standard library and numpy; speaks MQTT 3.1.1 and 5 to any broker. The scenarios are in `benchmarks.scenarios`, what the figures mean in
`benchmarks.outcome`. Exit code 0: the run has a result and nothing was lost, doubled, disordered or refused.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from benchmarks import meter
from benchmarks.clients import Endpoint
from benchmarks.outcome import Result
from benchmarks.scenarios import SCENARIOS, Options, Setting
from benchmarks.wire import QoS, Refused, Version
from benchmarks.workers import RunFailed


@dataclass(frozen=True, slots=True)
class Probe:
    """The disk before and after a run: rates of a durable broker mean something only beside these."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a results file."""

    date: str
    commit: str
    broker: str
    broker_version: str
    machine: meter.Machine
    load_average: float
    mqtt: str
    options: Options
    fdatasync_p50_ms: Probe
    result: Result
    variant: str = ""
    """What is not as usual: a transport, a size, how much there was before. Only runs of one variant are compared with each other."""

    def line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Target:
    """A running broker as the generator knows it."""

    name: str
    version: str
    endpoint: Endpoint
    groups: meter.Groups
    data_dir: Path | None
    probe_dir: Path
    variant: str = ""


def run(scenario: str, target: Target, options: Options, name: str = "") -> list[Record]:
    """One run of a scenario against a broker; `RunFailed` when there is no result.

    name: begins its client ids and topics, for one that has to have those of the run before. By default no two runs of a machine meet."""
    raise_file_limit()
    # Hexadecimal milliseconds: short.
    called = name or f"b{time.time_ns() // 1_000_000 & 0xFFFF_FFFF:x}"
    setting = Setting(target.endpoint, target.groups, target.data_dir, called)
    load_average = round(os.getloadavg()[0], 2)
    try:
        before = meter.fdatasync_p50_ms(target.probe_dir)
        results = SCENARIOS[scenario](setting, options)
        probe = Probe(round(before, 3), round(meter.fdatasync_p50_ms(target.probe_dir), 3))
    except (OSError, Refused) as error:
        raise RunFailed(f"{scenario} on {target.name}: {error}") from error
    if not all(result.sent for result in results):
        raise RunFailed(f"{scenario} on {target.name}: nothing was sent")
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    mqtt = {4: "3.1.1", 5: "5"}[target.endpoint.version]
    commit, machine = meter.commit(), meter.machine()
    return [
        Record(date, commit, target.name, target.version, machine, load_average, mqtt, options, probe, result, target.variant)
        for result in results
    ]


def raise_file_limit() -> None:
    """A thousand sessions come in bundles of a hundred sockets, but online ones are all open at once."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def parse_group(text: str) -> tuple[str, tuple[int, ...]]:
    """`NAME=PID,PID` or `PID,PID`, which is called `broker`."""
    name, equals, pids = text.rpartition("=")
    try:
        return name if equals else "broker", tuple(int(pid) for pid in pids.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}, wanted NAME=PID,PID,...") from None


def arguments() -> argparse.ArgumentParser:
    """The command line: one option for each field of `Options`, and where the broker is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("scenario", choices=list(SCENARIOS), help="\n".join(f"{name}: {call.__doc__}" for name, call in SCENARIOS.items()))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--mqtt", choices=("3.1.1", "5"), default="3.1.1")
    parser.add_argument("--user", default="", help="user name for brokers that store nothing for anonymous clients")
    parser.add_argument("--web", action="store_true", help="by WebSocket, at the path /mqtt")
    parser.add_argument("--ca", default="", metavar="FILE", help="by TLS; the certificates (PEM) that sign the broker's")
    parser.add_argument("--cpu", action="append", type=parse_group, default=[], metavar="NAME=PIDS", help="a group whose CPU is measured")
    parser.add_argument("--data-dir", type=Path, help="the broker's data directory, to measure what it stores")
    parser.add_argument("--probe-dir", type=Path, default=Path(tempfile.gettempdir()), help="where the disk's fdatasync is measured")
    parser.add_argument("--broker", default="", help="the broker's name, for the record")
    parser.add_argument("--broker-version", default="")
    defaults = Options()
    for option in fields(Options):
        value = getattr(defaults, option.name)
        flag = "--" + option.name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true")
        elif option.name == "qos":
            parser.add_argument(flag, type=int, choices=get_args(QoS), default=value)
        else:
            parser.add_argument(flag, type=type(value), default=value, help=f"default {value}")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    asked = arguments().parse_args(words)
    version: Version = 5 if asked.mqtt == "5" else 4
    options = Options(**{option.name: getattr(asked, option.name) for option in fields(Options)})
    target = Target(
        name=asked.broker,
        version=asked.broker_version,
        endpoint=Endpoint(asked.host, asked.port, version, asked.user, web=asked.web, ca=asked.ca),
        groups=dict(asked.cpu),
        data_dir=asked.data_dir,
        probe_dir=asked.data_dir.parent if asked.data_dir else asked.probe_dir,
    )
    try:
        records = run(asked.scenario, target, options)
    except RunFailed as failure:
        print(f"no result: {failure}", file=sys.stderr)
        return 2
    for record in records:
        print(record.line(), flush=True)
    return 0 if all(record.result.clean for record in records) else 1


if __name__ == "__main__":
    sys.exit(main())
