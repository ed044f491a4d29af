"""Gate 5 of issue 4 of the plan: a stranger's first hour with the pipeline.

What docs/pipeline.md and the notebook tell them to type is run as it stands, each from `make run` with new data to a chart with the
messages in it, in ten minutes. Then what goes wrong in a first hour: a bad option, a wrong token, a broker that is down, a generation
that was dropped, a store and a reader that are newer than the program. Each is told in one clear sentence, by commands on one line of
standard error, within Spark by what the source itself says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.datadir import FORMAT_VERSION_SITES
from holdfast_spark.client import Client, Endpoint
from holdfast_spark.protocol import Wire
from tests.broker.running import Options, RunningBroker, free_port
from tests.gates.gate import GateFailed, Scale
from tests.lake.ledger import LakeLedger
from tests.lake.made import made
from tests.lake.publishers import make_publishers, publishing
from tests.lake.sentences import caught, command, sentence_in, unclear
from tests.lake.walk import Block, Walk, blocks_of_notebook, blocks_of_page
from tests.needs import ROOT

LIMIT_S = 1800
PAGE = ROOT / "docs" / "pipeline.md"
NOTEBOOK = ROOT / "docs" / "notebooks" / "first-hour.ipynb"
CHART = Block("python", "print(chart._repr_svg_())", "its chart")
"""What a notebook does with the last value of a cell."""
BARS, ROOMS, HOURS = 4, 3, 24
BLOCK_S = 400.0
HOUR_S = 600.0
"""Ten minutes, as the page says."""
DROP_S = 60.0


def say(line: str) -> None:
    print(f"  {line}", flush=True)


@contextmanager
def fresh(directory: Path, **more: str) -> Iterator[tuple[RunningBroker, int]]:
    """A broker whose data is in ``data`` of this directory, and the port of its reader."""
    directory.mkdir(exist_ok=True)
    port = free_port()
    chosen = {"ray.dashboard": "false", "pipeline.listen": f"127.0.0.1:{port}", **more}
    with RunningBroker(Options(chosen), data_dir=directory / "data") as broker:
        yield broker, port


def walked(blocks: list[Block], directory: Path, charts: Callable[[str], int], wanted: int) -> str:
    """charts: how many lines or bars there are in what was printed."""
    if not blocks:
        raise GateFailed("there is nothing to walk")
    directory.mkdir()
    began = time.monotonic()
    with made(directory, {"HOLDFAST__PIPELINE__LISTEN": f"127.0.0.1:{free_port()}"}):
        walk = Walk(directory, block_s=BLOCK_S)
        try:
            printed = [walk.step(block) for block in blocks]
        finally:
            walk.close()
        took_s = time.monotonic() - began
    said = f"{len(blocks)} blocks of {blocks[0].where.split(':')[0].split(',')[0]} in {took_s:.0f} s"
    if (found := charts("\n".join(printed))) != wanted:
        raise GateFailed(f"{said}, and the chart has {found} lines instead of {wanted}")
    if took_s > HOUR_S:
        raise GateFailed(f"{said}, {HOUR_S:.0f} is the most")
    return said


def bars(printed: str) -> int:
    """Of the page: one for each topic, as long as it is warm."""
    return len(re.findall(r"^plant/\d/temp +#{10,}$", printed, re.M))


def lines(printed: str) -> int:
    """Of the notebook: one for each room, with a point for each hour."""
    return sum(len(points.split()) == HOURS for points in re.findall(r'<polyline points="([^"]*)"', printed))


class Sentences:
    """Collects what is wrong with them; all are tried before the gate says so."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.wrong: list[str] = []
        self.count = 0

    def command(self, what: str, arguments: list[str], words: list[str]) -> None:
        told = command(arguments, self.directory)
        self._judged(what, told.wrong(words), " | ".join(told.lines))

    def spark(self, what: str, walk: Walk, code: str, words: list[str]) -> None:
        sentence = sentence_in(walk.step(Block("python", caught(code), what)))
        self._judged(what, unclear(sentence, words), sentence)

    def _judged(self, what: str, wrong: str | None, shown: str) -> None:
        self.count += 1
        say(f"{what}: {shown[:300]}")
        if wrong is not None:
            self.wrong.append(f"{what}: {wrong}")


SESSION = 'from pipeline.session import session\nspark = session("./data", conf={"spark.ui.enabled": "false"}, progress=False)'
READ = 'spark.read.format("holdfast"){options}.load().count()'


def reading(**options: str) -> str:
    return READ.format(options="".join(f".option({name!r}, {value!r})" for name, value in options.items()))


async def publish_some(port: int, seconds: float) -> None:
    publishers = make_publishers(port, LakeLedger(), 2, 1, 200.0)
    async with publishing(publishers):
        await asyncio.sleep(seconds)
        await asyncio.gather(*(publisher.finish(30.0) for publisher in publishers))


def dropped_offset(port: int, token: str) -> str:
    """Where nothing is any more, as an offset; waits until the first generation with messages has gone."""
    with Client(Endpoint((("127.0.0.1", port),), token), patience_s=30.0) as client:
        deadline = time.monotonic() + DROP_S
        while True:
            cuts = client.cuts()
            if any(told["gone"] and int(told["earliest"]) > 0 for told in cuts["shards"].values()):
                return json.dumps({"s": dict.fromkeys(cuts["shards"], 0), "store": cuts["store"], "v": 1})
            if time.monotonic() > deadline:
                raise GateFailed(f"no generation was dropped within {DROP_S:.0f} s")
            time.sleep(0.5)


@contextmanager
def newer_reader() -> Iterator[int]:
    """A port where a reader answers that speaks version 2."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            wire = Wire(connection)
            try:
                found = wire.receive_json()
                wire.send_json(
                    {
                        "error": "VERSION",
                        "sentence": f"the client speaks version {found['hello']} of the protocol, and this reader version 2",
                    }
                )
            except OSError:
                pass  # gone again
            wire.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def wrong_things(directory: Path) -> Sentences:
    sentences = Sentences(directory)
    short = {
        "durable_storage.messages.capture": '["#"]',
        "durable_storage.messages.generation_length": "2s",
        "durable_sessions.message_retention_period": "4s",
        "durable_storage.messages.n_shards": "1",
    }
    with fresh(directory, **short) as (broker, port):
        here = ["--data-dir", str(broker.data_dir)]
        walk = Walk(directory, block_s=BLOCK_S)
        try:
            asyncio.run(publish_some(broker.port, 3.0))
            walk.step(Block("python", SESSION, "a session"))
            sentences.spark("an unknown option", walk, reading(maxRowPerTrigger="5"), ["maxRowPerTrigger", "unknown"])
            sentences.spark("a bad value", walk, reading(topicFilter="plant/#/x"), ["topicFilter", "plant/#/x", "wanted"])
            wrong = {"brokers": f"127.0.0.1:{port}", "token": "not-the-one"}
            sentences.spark("a wrong token", walk, reading(**wrong), ["token", "not one of this broker"])
            token = (broker.data_dir / "pipeline.token").read_text().strip()
            lost = reading(startingOffsets=dropped_offset(port, token))
            sentences.spark("a dropped generation", walk, lost, ["generation", "shard", "dropped"])
            (directory / "wrong.token").write_text("not-the-one\n")
            there = ["--brokers", f"127.0.0.1:{port}", "--token-file", str(directory / "wrong.token")]
            sentences.command("a command with a wrong token", ["pipeline", "capacity", *there], ["token", "not one of this broker"])
            sentences.command("a bad sequence", ["pipeline", "audit", "--sequence", "nonsense", *here], ["nonsense", "json:FIELD"])
            sentences.command("a bad filter", ["pipeline", "capacity", "--topic-filter", "a/#/b", *here], ["a/#/b"])
            broker.down()
            sentences.spark("a dead broker", walk, reading(), ["no answer", f"127.0.0.1:{port}", "is the broker up"])
        finally:
            walk.close()
    sentences.command("a command with a dead broker", ["pipeline", "capacity", *here], ["broker"])
    with newer_reader() as newer:
        there = ["--brokers", f"127.0.0.1:{newer}", "--token-file", str(directory / "wrong.token")]
        sentences.command("a newer reader", ["pipeline", "capacity", *there], ["version 1", "version 2"])
    site = directory / "data" / "site.json"
    written = json.loads(site.read_text())
    versions = [key for key in written if "version" in key or "format" in key]
    if not versions:
        raise GateFailed(f"site.json has no version among {sorted(written)}")
    newest = FORMAT_VERSION_SITES
    site.write_text(json.dumps({**written, versions[0]: newest + 1}))
    for what, arguments in (("a newer store", ["pipeline", "capacity"]), ("a broker with a newer store", ["up", "--detach"])):
        sentences.command(what, [*arguments, *here], [f"version {newest + 1}", f"up to {newest}", "newer Holdfast"])
    return sentences


def first_hour(directory: Path, scale: Scale) -> str:
    said = [walked(blocks_of_page(PAGE), directory / "page", bars, BARS)]
    say(said[-1])
    if not scale.quick:
        said.append(walked([*blocks_of_notebook(NOTEBOOK), CHART], directory / "notebook", lines, ROOMS))
        say(said[-1])
    sentences = wrong_things(directory / "wrong")
    if sentences.wrong:
        raise GateFailed(f"{len(sentences.wrong)} of {sentences.count} are no clear sentence: {'; '.join(sentences.wrong)}")
    return f"{'; '.join(said)}; {sentences.count} mistakes are told in one sentence each"


async def run(scale: Scale) -> str:
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    directory = Path(tempfile.mkdtemp(prefix="hf-hour-"))
    try:
        return await asyncio.to_thread(first_hour, directory, scale)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
