"""`holdfast pipeline` on a real broker, without Spark: the reader comes and goes, tokens, capacity with who would lose what.

The reader speaks TLS, with a certificate for another name than the one at which commands of this machine reach it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner, Result

from cli.main import app
from tests.actors.hand import Hand
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.holdfast_spark.signed import Signed

pytestmark = [pytest.mark.slow]
GONE_S = 60.0
SEALED_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    cert, key = Signed(tmp_path_factory.mktemp("tls"), [x509.DNSName("broker.example")]).files
    settings = {
        "pipeline.listen": "127.0.0.1:0",
        "pipeline.tls_cert": str(cert),
        "pipeline.tls_key": str(key),
        "durable_storage.messages.generation_length": "2s",
        "durable_storage.messages.n_shards": "1",
    }
    with RunningBroker(Options({**QUIET_RAY, **settings})) as running:
        yield running


def run(broker: RunningBroker, *words: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *words, "--data-dir", str(broker.data_dir)])


def test_the_reader_is_started_and_stopped_by_hand(broker: RunningBroker) -> None:
    """start says where it listens, and again the same; stop lets it go; the token is where it is said to be, for its owner only."""
    token = Path(run(broker, "token").stdout.strip())
    assert token.read_text().strip(), "it is there before there is a reader"
    started = json.loads(run(broker, "start", "--json").stdout)
    first = started["address"]
    assert started["tls"] and first.startswith("127.0.0.1:") and f"{first} in TLS" in run(broker, "start").stdout
    assert token.parent == broker.data_dir.resolve() and token.stat().st_mode & 0o777 == 0o600
    assert broker.status().pids("reader")
    assert run(broker, "stop").exit_code == 0
    deadline = time.monotonic() + GONE_S
    while broker.status().pids("reader"):
        assert time.monotonic() < deadline, "the reader stays"
        time.sleep(0.2)


async def test_capacity_names_who_would_lose_what(broker: RunningBroker) -> None:
    """A session that is away, a lease that took nothing; nobody when the period is long enough, or everything was read."""
    away = await Hand.connect(broker.port, "away", 5, expiry_s=3600)
    await away.subscribe("cap/#", 1)
    await away.close()
    lease = ["storage", "lease", "create", "lake", "--filter", "cap/+", "--data-dir", str(broker.data_dir)]
    assert (await asyncio.to_thread(CliRunner().invoke, app, lease)).exit_code == 0
    publisher = await Hand.connect(broker.port, "publisher", 5)
    for number in range(30):
        await publisher.published(f"cap/{number % 2}", str(number))
    await publisher.close()
    deadline = time.monotonic() + SEALED_S
    while True:
        found = json.loads((await asyncio.to_thread(run, broker, "capacity", "--json", "--period", "0s")).stdout)
        # Of sealed generations, and they may have been published into two.
        if any(each["messages"] == 30 for each in found["losers"]) or time.monotonic() > deadline:
            break
        await asyncio.sleep(1)
    assert sum(each["rows"] for each in found["patterns"] if each["pattern"].startswith("cap/")) == 30
    of = {each["name"]: each for each in found["losers"]}
    assert (of["away"]["kind"], of["away"]["filter"], of["away"]["messages"], of["away"]["held"]) == ("session", "cap/#", 30, False)
    assert (of["lake"]["kind"], of["lake"]["held"]) == ("lease", True)
    # Of the newest generations; those that have the messages may be older by now.
    assert found["forecast"]["used_bytes"] > 0 and found["forecast"]["rows_per_s"] is not None
    text = (await asyncio.to_thread(run, broker, "capacity", "--period", "1h")).stdout
    assert "cap/" in text and "with 1h: nobody would lose anything" in text and "of a quota of" in text


def test_a_broker_that_is_down_is_one_sentence(tmp_path: Path) -> None:
    """And so is a directory that is none."""
    result = CliRunner().invoke(app, ["pipeline", "capacity", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1 and len(result.stderr.splitlines()) == 1 and "site.json" in result.stderr
