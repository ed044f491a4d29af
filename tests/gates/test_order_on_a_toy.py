"""Gate 3's proof from end to end: the library, a real RocksDB, real sockets, and a toy broker that is honest or is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.client import Client
from tests.broker.history import History
from tests.broker.running import free_port
from tests.faultdisk.control import FaultDisk
from tests.gates.order import Proof, prove
from tests.needs import ROOT

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.slow]
MESSAGES = 200


@contextmanager
def toy_broker(disk: FaultDisk, port: int, mode: str) -> Iterator[None]:
    environment = {**os.environ, **disk.environment(sockets=str(port), keep_logs=True)}
    command = [sys.executable, "-m", "tests.gates.toy_broker", str(port), str(disk.root / "db"), mode]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def proof_of(tmp_path: Path, mode: str, window: int) -> Proof:
    disk, port, history = FaultDisk(tmp_path / "root", tmp_path), free_port(), History()
    clients = [Client(port, f"pub-{n}", history, window=window) for n in range(2)]
    with toy_broker(disk, port, mode):
        for client in clients:
            await client.start()
        for n in range(MESSAGES):
            await clients[n % 2].publish(f"a/b/{n % 5}", 1, size=256)
        for client in clients:
            await client.acknowledged(60)
            await client.stop()
    connections = [(client.client_id, each) for client in clients for each in client.connections]
    return prove(disk.trace(), disk.kept, port, connections)


@pytest.mark.parametrize("window", [1, 50])
async def test_a_broker_that_syncs_before_it_acknowledges_is_proven(tmp_path: Path, window: int) -> None:
    """Every acknowledgement, one at a time and in groups."""
    proof = await proof_of(tmp_path, "honest", window)
    assert proof.acknowledgements == MESSAGES and proof.unproven == []
    assert proof.syncs >= (MESSAGES // 2 if window == 1 else 2) and proof.least_lead_us < 1_000_000


@pytest.mark.parametrize("mode", ["early", "never", "behind"])
async def test_a_broker_that_acknowledges_first_is_found(tmp_path: Path, mode: str) -> None:
    """Most acknowledgements of each dishonest mode are unproven; that a sync happens at some time is not enough."""
    proof = await proof_of(tmp_path, mode, 1)
    assert proof.acknowledgements == MESSAGES
    assert len(proof.unproven) > MESSAGES // 2, proof.unproven[:3]
