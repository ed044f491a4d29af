"""`python -m benchmarks.stages`: what the microseconds of a message buy, stage by stage, and a flame graph of each scenario.

A scenario runs twice: once for what it costs by the kernel's account, thread by thread, and once while py-spy looks at the processes that
carry messages, which makes them dearer.  Each look at a loop that works is put down to the stage whose code it is in, by the innermost of
our frames, and what the loop costs is shared out by these looks.

Beside it stands what nobody can do without on this machine: the same bytes through sockets, and into RocksDB's log and tables.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import Options as RocksOptions
from rocksdict import Rdict, WriteBatch

from benchmarks import page
from benchmarks.bench import running, target
from benchmarks.brokers import Holdfast, ended_from_outside
from benchmarks.flame import drawn
from benchmarks.load import Record, run
from benchmarks.scenarios import Options
from benchmarks.table import markdown
from benchmarks.workers import RunFailed

PLOTS: Final = page.PAGE.parent / "plots"
LOOKS_PER_S: Final = 100
SCENARIOS: Final = {
    "offline": Options(messages=1_500_000, hard_s=120),
    "fan-in": Options(seconds=10.0),
    "fan-out": Options(seconds=10.0),
    "single": Options(seconds=12.0),
}
STAGES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("sockets: receiving, sending", ("actors/connection.py", "gateway/transport/", "actors/link.py")),
    ("packets: taken apart, put together", ("mqtt/", "gateway/egress.py", "sessions/bodies.py")),
    ("gateway: publishers, answers, its turns", ("gateway/", "actors/gateway.py", "actors/gateway_links.py")),
    (
        "between parts: frames",
        ("shards/frames.py", "sessions/framing.py", "sessions/frames.py", "actors/direct.py", "actors/shard_client.py", "actors/outbox.py"),
    ),
    ("shard: RocksDB's write", ("shards/engine_rocks.py",)),
    ("shard: streams, rows, records, its turns", ("shards/", "actors/shard")),
    ("session actor", ("sessions/", "actors/serving.py")),
    ("the loop, figures, the rest", ("",)),
)
"""By the file of the innermost of our frames; the first that fits."""
ROCKS: Final = "RocksDB's threads: flushing, merging"
OTHERS: Final = "other threads: syncs, Ray's own"
OURS: Final = ("actors/", "shards/", "gateway/", "sessions/", "mqtt/", "access/")
ELSEWHERE: Final = ("RocksEngine.sync", "Syncing._in_thread", "_rest (actors/main_thread.py")
"""Begins of frames of whoever waits for a disk, and of threads beside the loop: on some kernels py-spy takes who sleeps for who works."""
BODY: Final = 256


@dataclass(frozen=True, slots=True)
class Looked:
    """A scenario.  us: CPU of a message by stage, its phases together."""

    record: Record
    us: Mapping[str, float]


# ------------------------------------------------------------------ looks
def stage_of(stack: Sequence[str]) -> str | None:
    """Of frames such as `handle (shards/core.py:230)`, the outermost first; None: it waits for a disk, or is no loop of ours."""
    if any(frame.startswith(ELSEWHERE) for frame in stack):
        return None
    files = [frame.rpartition("(")[2] for frame in stack]
    ours = [file for file in files if file.startswith(OURS)]
    return next(name for name, places in STAGES if ours[-1].startswith(places)) if ours else None


def stacks_of(raw: str) -> list[tuple[list[str], int]]:
    """Those of the loop, from our first frame on, and how often each was seen, of what `py-spy record --format raw` has written."""
    found = []
    for line in raw.splitlines():
        frames, _, count = line.rpartition(" ")
        stack = frames.split(";")
        if stage_of(stack) is not None:
            first = next(at for at, frame in enumerate(stack) if frame.rpartition("(")[2].startswith(OURS))
            found.append((stack[first:], int(count)))
    return found


def shares(raw: str) -> Counter[str]:
    """Looks by stage."""
    found: Counter[str] = Counter()
    for stack, looks in stacks_of(raw):
        found[stage_of(stack) or ""] += looks
    return found


def threads_s(pid: int) -> dict[str, float]:
    """CPU so far by thread id; RocksDB's threads together."""
    found: dict[str, float] = {}
    for task in Path("/proc", str(pid), "task").iterdir():
        try:
            name, fields = (task / "comm").read_text().strip(), (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended while we looked
        who = ROCKS if name.startswith("rocksdb") else task.name
        found[who] = found.get(who, 0.0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def look(broker: Holdfast, scenario: str, options: Options, directory: Path) -> Looked:
    """Run it once for what it costs, and once to look.  Raises RunFailed."""
    pids = sorted(set(broker.groups()["data"]))
    before = {pid: threads_s(pid) for pid in pids}
    record = run(scenario, target(broker, 4), options)[-1]
    used = {pid: threads_s(pid) for pid in pids}
    looks = _looks(broker, scenario, options, pids, directory)
    parts: dict[str, float] = {}
    for pid in pids:
        spent = {who: seconds - before[pid].get(who, 0.0) for who, seconds in used[pid].items()}
        parts[ROCKS] = parts.get(ROCKS, 0) + spent.pop(ROCKS, 0)
        loop_s = max(spent.values()) if looks[pid] else 0.0
        parts[OTHERS] = parts.get(OTHERS, 0) + sum(spent.values()) - loop_s
        for name, count in looks[pid].items():
            parts[name] = parts.get(name, 0) + loop_s * count / looks[pid].total()
    costs = [cost["data"].cpu_us for cost in (record.result.cost, record.result.drain_cost) if "data" in cost]
    whole = sum(parts.values())
    if not costs or not whole:
        raise RunFailed(f"nothing was seen of {scenario}")
    return Looked(record, {name: sum(costs) * seconds / whole for name, seconds in parts.items()})


def _looks(broker: Holdfast, scenario: str, options: Options, pids: Sequence[int], directory: Path) -> dict[int, Counter[str]]:
    """By process, while it runs once more; `flame-SCENARIO.svg` is a picture of the busiest."""
    files = {pid: directory / f"{scenario}-{pid}.raw" for pid in pids}
    spies = [_spy(pid, file) for pid, file in files.items()]
    try:
        run(scenario, target(broker, 4), options)
    finally:
        for spy in spies:
            spy.send_signal(signal.SIGINT)
            spy.wait()
    raw = {pid: file.read_text() if file.exists() else "" for pid, file in files.items()}
    busiest = max(raw.values(), key=lambda text: shares(text).total())
    (directory / f"flame-{scenario}.svg").write_text(drawn(stacks_of(busiest), scenario), encoding="utf-8")
    return {pid: shares(text) for pid, text in raw.items()}


def _spy(pid: int, file: Path) -> subprocess.Popen[bytes]:
    words = ["record", "--pid", str(pid), "--rate", str(LOOKS_PER_S), "--duration", "600", "--format", "raw", "--output", str(file)]
    command = [str(Path(sys.executable).parent / "py-spy"), *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# ------------------------------------------------------------------ what is not to be had for less
def sockets_us(messages: int = 400_000) -> float:
    """CPU of a message of 300 bytes through a loopback socket, 64 KiB at a time: both ends, the kernel's work included."""
    chunk, size = b"x" * 65_536, 300
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = socket.create_connection(listening.getsockname())
        receiver, _ = listening.accept()
    left = messages * size

    def send() -> None:
        for _ in range(left // len(chunk)):
            sender.sendall(chunk)
        sender.close()

    began = time.process_time()
    thread = threading.Thread(target=send)
    thread.start()
    while receiver.recv(262_144):
        pass
    thread.join()
    receiver.close()
    return (time.process_time() - began) / messages * 1e6


def rocksdb_us(directory: Path, messages: int = 400_000) -> float:
    """CPU of a message of 300 bytes that RocksDB takes in a batch of 500: log, memory table, and the threads that flush and merge."""
    options = RocksOptions(raw_mode=True)
    options.set_write_buffer_size(16 << 20)
    db = Rdict(str(directory / "rocksdb"), options)
    began, body = time.process_time(), b"x" * 300
    for first in range(0, messages, 500):
        batch = WriteBatch(raw_mode=True)
        for number in range(first, first + 500):
            batch.put(number.to_bytes(16, "big"), body)
        db.write(batch)
        db.flush_wal(True)
    db.flush()
    used = time.process_time() - began
    db.close()
    return used / messages * 1e6


# ------------------------------------------------------------------ the page
def text(looked: Mapping[str, Looked], least: Mapping[str, float]) -> str:
    """The table of the page."""
    names = [name for name, _ in STAGES] + [ROCKS, OTHERS]
    rows = [["µs of CPU a message", *looked]]
    for name in names:
        rows.append([name, *(f"{each.us.get(name, 0):.2f}" if each.us.get(name) else "" for each in looked.values())])
    rows.append(["**all**", *(f"**{sum(each.us.values()):.1f}**" for each in looked.values())])
    first = next(iter(looked.values())).record
    about = f"Commit {first.commit}, {first.date[:10]}, {first.machine.cores} cores of {first.machine.model}."
    limits = "; ".join(f"{what} {us:.2f} µs" for what, us in least.items())
    return "\n".join([about, "", *markdown(rows), "", f"What cannot be had for less here, a message of 300 bytes: {limits}."])


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", default=[], choices=list(SCENARIOS), help="leave out the others")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Holdfast")
    parser.add_argument("--write", action="store_true", help="the table and the pictures into docs")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command.  Exit code 2: there is no result."""
    asked = arguments().parse_args(words)
    looked: dict[str, Looked] = {}
    try:
        with ended_from_outside(), tempfile.TemporaryDirectory(prefix="stages-") as name:
            directory = Path(name)
            least = {"through a socket": sockets_us(), "into RocksDB": rocksdb_us(directory)}
            broker = Holdfast(directory, asked.set)
            with running([broker]):
                for scenario in asked.only or SCENARIOS:
                    print(scenario, file=sys.stderr, flush=True)
                    looked[scenario] = look(broker, scenario, SCENARIOS[scenario], directory)
                    if asked.write:
                        PLOTS.mkdir(exist_ok=True)
                        shutil.copy(directory / f"flame-{scenario}.svg", PLOTS)
    except RunFailed as failure:
        print(f"no result: {failure}", file=sys.stderr)
        return 2
    print(text(looked, least))
    if asked.write:
        page.write("stages", text(looked, least))
    return 0


if __name__ == "__main__":
    sys.exit(main())
