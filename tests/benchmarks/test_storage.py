"""The benchmark of layouts: its workers do what they are told, and the page says what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.storage.choice import Wanted
from benchmarks.storage.measured import Opened, Read, Write
from benchmarks.storage.page import default_sentence, render
from benchmarks.storage.rounds import ratio
from benchmarks.storage.shapes import SHAPES
from benchmarks.storage.worker import Worker
from shards.layouts.registry import layout_named
from tests.needs import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["hot", "devices", "deep", "one-off", "literal", "fleet"])
def test_all_layouts_are_given_and_give_the_same_messages(shape: str, tmp_path: Path) -> None:
    # Property: what is compared is the same work: as many messages, found under the same filters, before and after folding.
    seen = []
    for layout in ("pagestream", "record_batch", "skipstream"):
        worker = Worker(layout, shape, tmp_path / layout, False)
        written = worker.answer(["write", "300", "30", "1"])
        assert isinstance(written, Write) and written.process_us > 0
        filters = [topic_filter.decode() for topic_filter in (b"#", SHAPES[shape].plus_one, SHAPES[shape].plus_two) if topic_filter]
        found = [worker.answer(["read", topic_filter, "7", "1000"]) for topic_filter in filters]
        found += [worker.answer(["raw", "1000"])]
        found += [worker.answer(["ones", "8"])] if SHAPES[shape].one else []
        worker.answer(["fold"])
        found += [worker.answer(["read", "#", "7", "1000"])]
        opened = worker.answer(["reopen"])
        assert isinstance(opened, Opened) and opened.bytes_per_message > 20
        found += [worker.answer(["read", "#", "7", "1000"])]
        seen.append([each.messages for each in found if isinstance(each, Read)])
        worker.close()
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == seen[0][-1] == 300


def test_a_ratio_is_taken_within_rounds() -> None:
    # Property: a machine that gets slower between two rounds does not change what is said of the layouts.
    assert ratio([1.0, 2.0, 40.0], [2.0, 4.0, 80.0]) == 0.5


def test_the_page_says_what_was_missed() -> None:
    # Property: a ratio over its bound is named, and the default stays what it is.
    choice = [Wanted("write", 0.7, 0.6, 7.0, 10.0), Wanted("read", 1.0, 1.3, 5.0, 5.0)]
    page = render("Measured.", "skipstream", {"record_batch": choice, "pagestream": choice[1:]}, [], ("record_batch", "skipstream"))
    assert "`record_batch` misses 1 of 2:" in page and "`pagestream` reaches all 1:" in page
    assert "| write | 0.70 | 0.6 | 7.00 | 10.00 | missed |" in page
    assert default_sentence("skipstream") in page
    assert not choice[0].holds and choice[1].holds
    one = Wanted("one device", 1.2, 1.3, 5.0, 5.0, (3.0, 1.0, 1.2))
    page = render("Measured.", "skipstream", {"pagestream": [one]}, [], ("record_batch", "skipstream"))
    assert "| one device | 1.20 (3.00, 1.00, 1.20) | 1.3 | 5.00 | 5.00 |  |" in page and "600,000, 800,000" in page


def test_the_page_of_the_documentation_names_the_default() -> None:
    # Property: docs/layouts.md is of the program that it lies beside.
    assert default_sentence(layout_named("auto")) in (ROOT / "docs" / "layouts.md").read_text()
