"""What a stranger is told when something is wrong: one sentence, and no page around it.

Commands are judged by what they write: an exit code, one line on standard error that is a sentence, nothing that looks like a trace. What
fails within Spark is told by an exception, around which Spark puts pages; the sentence is what the source itself said, on a line of its
own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WORDS_MAX = 400
COMMAND_S = 300.0
_TRACE = re.compile(r'Traceback|^\s+File "|Error:|Exception|\.py\b|\bat org\.apache\.', re.M)
_NOT_SAID = re.compile(r"^(Spark UI: .*|WARNING: .*|\s*)$")
"""Lines that are no answer: where to watch, and the JVM's own."""


@dataclass(frozen=True, slots=True)
class Told:
    code: int
    lines: tuple[str, ...]

    def wrong(self, words: Sequence[str]) -> str | None:
        """What keeps this from being one clear sentence with these words in it; None when it is one."""
        if self.code == 0:
            return "the command ended with code 0"
        if len(self.lines) != 1:
            return f"{len(self.lines)} lines: {' | '.join(self.lines[:6])[:500]}"
        return unclear(self.lines[0].removeprefix("holdfast: "), words)


def unclear(sentence: str, words: Sequence[str]) -> str | None:
    """Why this is not one clear sentence with these words in it; None when it is."""
    if found := _TRACE.search(sentence):
        return f"{found[0]!r} in {sentence!r}"
    if not 20 <= len(sentence) <= WORDS_MAX:
        return f"{len(sentence)} characters: {sentence!r}"
    missing = [word for word in words if word.lower() not in sentence.lower()]
    return f"nothing of {missing} in {sentence!r}" if missing else None


def command(words: Sequence[str], directory: Path) -> Told:
    """`holdfast` with these words."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "holdfast"), *words],
        cwd=directory,
        env={**os.environ, "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    lines = [line.strip() for line in done.stderr.splitlines() if not _NOT_SAID.match(line)]
    return Told(done.returncode, tuple(lines))


# Run by the Python of a walk: what a cell of a notebook raises, by the words that the source itself used.
CAUGHT = """
from cli.pipeline_session import sentence as _sentence
_caught = None
try:
{code}
except Exception as _error:
    _caught = _sentence(_error)
print("CAUGHT " + str(_caught))
"""


def caught(code: str) -> str:
    """The program that does this and prints the sentence."""
    return CAUGHT.format(code="\n".join(f"    {line}" for line in code.splitlines()))


def sentence_in(printed: str) -> str:
    """What such a program printed; empty when there was none."""
    lines = [line.removeprefix("CAUGHT ") for line in printed.splitlines() if line.startswith("CAUGHT ")]
    return lines[-1] if lines else ""
