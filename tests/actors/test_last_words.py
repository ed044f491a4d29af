"""What a process says when it ends in a library is beside its log (actors.logs)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from actors.logs import ERROR_BYTES_MAX

ENDS = """
import ctypes, os, sys
from pathlib import Path
from actors.logs import keep_last_words
def ends():
    os.write(2, b"a library speaks\\n")
    {how}
keep_last_words(Path(sys.argv[1]))
ends()
"""


def ended(path: Path, how: str) -> int:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", ENDS.format(how=how), str(path)], cwd=root, capture_output=True, timeout=60, check=False)
    assert done.stderr == b"" or not path.is_file()
    return done.returncode


def test_a_signal_leaves_what_was_said_and_the_stack(tmp_path: Path) -> None:
    """Of each process that ended so, one behind the other; for its owner only."""
    path = tmp_path / "reader-0.err"
    assert ended(path, "os.abort()") == -signal.SIGABRT
    assert ended(path, "ctypes.string_at(0)") == -signal.SIGSEGV
    found = path.read_text()
    assert found.count("a library speaks") == 2 == found.count("in ends") and path.stat().st_mode & 0o777 == 0o600
    assert found.index("Fatal Python error: Aborted") < found.index("Fatal Python error: Segmentation fault")


def test_it_is_bounded_and_a_full_disk_ends_nobody(tmp_path: Path) -> None:
    """One that has grown too large is moved aside, in the place of the one before; where there can be none the process goes on without."""
    path, aside = tmp_path / "shard-0.err", tmp_path / "shard-0.err.1"
    path.write_bytes(bytes(ERROR_BYTES_MAX))
    aside.write_text("older")
    assert ended(path, "pass") == 0
    assert path.read_text() == "a library speaks\n" and aside.stat().st_size == ERROR_BYTES_MAX
    assert ended(tmp_path / "none" / "shard-0.err", "pass") == 0
