"""The page and the notebook, run as they stand against a broker; and tables of the page against the code they are of."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_spark import options, sink
from holdfast_spark.protocol import Code
from holdfast_spark.schema import TYPES
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.lake.walk import Block, Walk, blocks_of_notebook, blocks_of_page
from tests.needs import ROOT

REAL = [pytest.mark.broker, pytest.mark.slow, pytest.mark.needs("spark"), pytest.mark.timeout(900)]
BLOCK_S = 400.0
PAGE = ROOT / "docs" / "pipeline.md"
BRIDGES = ROOT / "docs" / "bridge.md"
NOTEBOOK = ROOT / "docs" / "notebooks" / "first-hour.ipynb"


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(Options({**QUIET_RAY, "pipeline.listen": "127.0.0.1:0"})) as running:
        yield running


def real(test: object) -> object:
    for mark in REAL:
        test = mark(test)
    return test


def walked(broker: RunningBroker, directory: Path, blocks: list[Block]) -> list[str]:
    """What each block printed, in a directory where ./data is the broker's."""
    (directory / "data").symlink_to(broker.data_dir)
    walk = Walk(directory, block_s=BLOCK_S)
    try:
        return [walk.step(block) for block in blocks]
    finally:
        walk.close()


@real
def test_the_notebook_runs_from_its_first_cell_to_its_chart(broker: RunningBroker, tmp_path: Path) -> None:
    """Messages are published over MQTT, read back, audited, and drawn: a line for each room, of 24 points."""
    said = walked(broker, tmp_path, [*blocks_of_notebook(NOTEBOOK), Block("python", "print(chart._repr_svg_())", "its chart")])
    assert any("864 messages are acknowledged" in each for each in said) and any("nothing is wrong" in each for each in said)
    (drawing,) = re.findall(r"<svg.*</svg>", said[-1], re.S)
    lines = ElementTree.fromstring(drawing).findall("{http://www.w3.org/2000/svg}polyline")
    assert [len((line.get("points") or "").split()) for line in lines] == [24, 24, 24]


@real
def test_the_page_does_what_it_says(broker: RunningBroker, tmp_path: Path) -> None:
    """Its walk, in the order of the page."""
    said = "".join(walked(broker, tmp_path, blocks_of_page(PAGE)))
    assert "1000 messages of 4 publishers and topics: 0 missing" in said
    assert "plant/0/temp" in said and re.search(r"plant/1/temp\s+#{10,}", said)
    assert "1000 messages in" in said and "nothing is wrong" in said


@real
def test_a_stream_with_a_lease_does_what_the_page_of_bridges_says(broker: RunningBroker, tmp_path: Path) -> None:
    """Its recipe, which carries a thousand messages to a database, each of them once."""
    said = walked(broker, tmp_path, blocks_of_page(BRIDGES))
    assert "1000 messages are there" in said[-1]
    (lease,) = json.loads(broker.command("storage", "lease", "ls", "--json"))
    assert lease["name"] == "carry"


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines[2:]]


def names(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`([A-Za-z_]+)`", row[0])]


@pytest.mark.parametrize(("heading", "known"), [("Options for reading", options.OPTIONS), ("Options for writing", sink.OPTIONS)])
def test_the_tables_of_options_are_those_of_the_code(heading: str, known: dict[str, object]) -> None:
    """Each option once, and none that is not there; so a new one is documented in the commit that makes it."""
    assert sorted(names(table(heading))) == sorted(known)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("startingOffsets", "earliest"), ("endingOffsets", "latest"), ("maxRowsPerPartition", "250000"), ("minPartitions", "1"),
        ("failOnDataLoss", "true"), ("leaseTtl", "7d"), ("leaseBlock", "false"), ("dropExpired", "false"), ("maxTriggerDelay", "15m"),
    ],
)  # fmt: skip
def test_defaults_of_the_table_change_nothing(option: str, text: str) -> None:
    """What the page says is the default is what it is when it is said."""
    base = {"brokers": "h:1", "token": "x"}
    of_lease = {"lease": "l"} if option.startswith("lease") else {}
    of_stream = {"minRowsPerTrigger": "5"} if option == "maxTriggerDelay" else {}
    without = options.read_options({**base, **of_lease, **of_stream}, stream=bool(of_stream))
    given = options.read_options({**base, **of_lease, **of_stream, option: text}, stream=bool(of_stream))
    # Where a batch begins and ends when nobody says is decided by the source.
    places = {"startingOffsets": "starting", "endingOffsets": "ending"}
    if option in places:
        assert getattr(without, places[option]) is None and getattr(given, places[option]) == text
    else:
        assert given == without
    (row,) = [row for row in table("Options for reading") if f"`{option}`" in row[0]]
    assert f"`{text}`" in row[1] or f"`{text}`," in row[1]


def test_the_table_of_errors_has_every_code() -> None:
    """Whoever meets one finds it."""
    codes = [found for row in table("What fails, and how") for found in re.findall(r"`([A-Z]+)`", row[0])]
    assert sorted(codes) == sorted(code.value for code in Code)


def test_the_table_of_columns_is_the_schema() -> None:
    """Each column once, in the order in which they come."""
    assert names(table("What a message is")) == list(TYPES)


def test_the_walk_of_the_page_is_found() -> None:
    """A walk that runs nothing would be green."""
    assert [block.language for block in blocks_of_page(PAGE)] == ["bash", "python", "python", "bash", "python"]
    assert len(blocks_of_notebook(NOTEBOOK)) >= 8
