"""What a page tells its reader is taken from it and run in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lake.walk import Block, Walk, WalkFailed, blocks_of_notebook, blocks_of_page

PAGE = """# A page
```bash walk
echo one > file
```
text
```python
not_for_us()
```
```python walk
value = open("file").read().strip()
```
```python walk again
print(value + "!")
```
"""


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    walk = Walk(tmp_path, block_s=20.0)
    yield walk
    walk.close()


def test_blocks_that_are_marked_are_taken_in_order(tmp_path: Path) -> None:
    """With the line where they begin; others are not."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [(block.language, block.where) for block in blocks_of_page(page)] == [
        ("bash", "page.md:2"), ("python", "page.md:9"), ("python", "page.md:12"),
    ]  # fmt: skip


def test_cells_of_a_notebook_are_shell_or_python(tmp_path: Path) -> None:
    """Text and cells that are marked to be left out are not run."""
    cells = [
        {"cell_type": "markdown", "source": ["# words"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "x = 1"]},
        {"cell_type": "code", "source": ["!echo hello"]},
        {"cell_type": "code", "source": ["%%bash\n", "echo more"]},
        {"cell_type": "code", "source": ["1/0"], "metadata": {"tags": ["skip-execution"]}},
        {"cell_type": "code", "source": []},
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert [(block.language, block.code) for block in blocks_of_notebook(path)] == [
        ("python", "x = 1"), ("bash", "echo hello"), ("bash", "echo more"),
    ]  # fmt: skip


@pytest.mark.slow
def test_blocks_share_a_directory_and_one_python(walk: Walk, tmp_path: Path) -> None:
    """What one has written and named the next one finds."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [walk.step(block) for block in blocks_of_page(page)] == ["", "", "one!\n"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [
        Block("bash", "false\necho on", "p:1"),
        Block("bash", "false | true", "p:1"),
        Block("python", "raise ValueError('this')", "p:1"),
        Block("python", "assert 1 == 2", "p:1"),
        Block("python", "import os; os._exit(3)", "p:1"),
    ],
)
def test_a_block_that_fails_stops_the_walk(walk: Walk, block: Block) -> None:
    """With the place of the block."""
    with pytest.raises(WalkFailed, match="p:1"):
        walk.step(block)
