"""Writes what was measured into a page, between the markers that say what belongs there: `<!-- NAME -->` and `<!-- /NAME -->`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.workers import RunFailed

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


def filled(text: str, name: str, body: str) -> str:
    """The page with this part anew; everything outside of the markers stays as it is. Raises RunFailed without the markers."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise RunFailed(f"the page has no part {begin} ... {end}")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{body.strip()}\n{end}{after}"


def write(name: str, body: str, page: Path = PAGE) -> None:
    """Fills a part of a page in its file."""
    page.write_text(filled(page.read_text(encoding="utf-8"), name, body), encoding="utf-8")
