"""A broker that was started by the words of the page: `make run` in the checkout, and Ctrl-C when one has seen enough."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.broker.running import GONE_DEADLINE_S, MARK, describe, free_port, marked
from tests.gates.gate import GateFailed
from tests.needs import ROOT

READY_S = 180.0
ENDED_S = 60.0


@contextmanager
def made(directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """With its data in ``data`` of the directory. environment: settings, as `HOLDFAST__...`. Nothing of it is left at the end."""
    mark, log, data_dir = uuid.uuid4().hex, directory / "make.log", directory / "data"
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["make", "--no-print-directory", "run", f"PORT={free_port()}", f"DATA_DIR={data_dir}"],
            cwd=ROOT,
            env={**os.environ, **environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        _wait_ready(process, data_dir, log)
        yield
        os.killpg(process.pid, signal.SIGINT)  # as the terminal does at Ctrl-C
        try:
            process.wait(ENDED_S)
        except subprocess.TimeoutExpired:
            raise GateFailed(f"`make run` was still there {ENDED_S:.0f} s after Ctrl-C") from None
        _wait_gone(mark)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)


def _wait_ready(process: subprocess.Popen[bytes], data_dir: Path, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    command = [str(Path(sys.executable).parent / "holdfast"), "status", "--json", "--data-dir", str(data_dir)]
    while True:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
        if asked.returncode == 0 and json.loads(asked.stdout)["ready"]:
            return
        words = " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])[-300:]
        if process.poll() is not None:
            raise GateFailed(f"`make run` ended with code {process.returncode}: {words}")
        if time.monotonic() > deadline:
            raise GateFailed(f"the broker of `make run` was not ready after {READY_S:.0f} s: {words}")
        time.sleep(0.2)


def _wait_gone(mark: str) -> None:
    deadline = time.monotonic() + GONE_DEADLINE_S
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if left:
        raise GateFailed(f"{len(left)} processes were alive {GONE_DEADLINE_S} s after Ctrl-C: {', '.join(map(describe, left[:3]))}")
