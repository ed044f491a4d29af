"""Commands and options that pages name are there, and commands that are there are named by a page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main

from cli.main import app
from tests.house.tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
_INLINE = re.compile(r"`(holdfast [^`]+)`")
COMMANDS = typer.main.get_command(app)
CONTEXT: Any = None
"""Groups take one, and none of ours looks at it."""


def typed(page: Path) -> Iterator[list[str]]:
    """The words of each command line that begins with `holdfast`, without what a comment says."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in _FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    found = [line.strip().removeprefix("$ ") for line in lines]
    # A line break in a paragraph is a blank.
    found += [" ".join(words.split()) for words in _INLINE.findall(_FENCED.sub("", text))]
    for line in found:
        if line.startswith("holdfast "):
            yield shlex.split(line, comments=True)[1:]


def unknown(words: list[str]) -> str | None:
    """The first command or option that is not there; None when all are."""
    command: Any = COMMANDS
    left = iter(words)
    for word in left:
        if word.startswith("--"):
            known = {option: parameter for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            option = word.split("=")[0]
            if option not in known and option != "--help":
                return word
            if option == word != "--help" and not known[option].is_flag:
                next(left, None)  # its value
        elif isinstance(command, typer.core.TyperGroup):
            # Pages name several at once, as in `holdfast storage info`, `ls`.
            below = command.get_command(CONTEXT, word.rstrip(","))
            if below is None:
                return word if word.isalpha() and word.islower() else None
            command = below
    return None


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, typer.core.TyperGroup):
        for name in command.list_commands(CONTEXT):
            yield from leaves(command.get_command(CONTEXT, name), (*path, name))
    elif not command.hidden:
        yield path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    """So that nobody types one that was renamed."""
    wrong = [f"{' '.join(words)}: {found}" for words in typed(page) if (found := unknown(words)) is not None]
    assert wrong == []


def test_every_command_is_on_a_page() -> None:
    """One that nobody can read about is not there."""
    texts = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in PAGES)
    assert [path for path in leaves(COMMANDS) if f"holdfast {' '.join(path)}" not in texts and f"`{path[-1]}`" not in texts] == []


def test_a_command_that_is_not_there_is_found() -> None:
    """By its name, or by its option."""
    assert unknown(["pipeline", "archiv", "/lake"]) == "archiv" and unknown(["pipeline", "audit", "--sequenz", "json:n"]) == "--sequenz"
    assert unknown(["topics", "--data-dir", "data", "explan"]) == "explan" and unknown(["topics", "--data-dir", "data"]) is None
    assert unknown(["pipeline", "archive", "/lake", "--watch"]) is None and len(list(leaves(COMMANDS))) > 20
