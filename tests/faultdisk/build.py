"""Compiles the interposed library, once per content of its source.

The result lies in the user's temporary directory under a name made of the
source's hash, so a change of the source is a new file and two test runs at the
same time never see half of one.  What the library does is in state.c and calls.c.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = ("faultdisk.h", "state.c", "calls.c")
FLAGS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden")


class CannotBuild(Exception):
    """There is no compiler here, or it refused the source."""


def library() -> Path:
    """The path of the compiled library; compiles it if this source was not seen before."""
    return compiled("faultdisk", Path(__file__).parent, SOURCES)


def compiled(name: str, here: Path, sources: tuple[str, ...]) -> Path:
    """A library of C sources that lie in ``here``; headers among them count for the name of the result only."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sources:
        digest.update((here / source).read_bytes())
    target = Path(tempfile.gettempdir()) / f"holdfast-{name}-{os.getuid()}" / f"{digest.hexdigest()[:16]}.so"
    if target.exists():
        return target
    compiler = shutil.which("gcc")
    if compiler is None:
        raise CannotBuild("gcc is not installed; deploy/debian-packages.txt names what the tests use")
    target.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    units = [str(here / source) for source in sources if source.endswith(".c")]
    done = subprocess.run([compiler, *FLAGS, "-o", str(fresh), *units, "-ldl", "-lpthread"], capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        raise CannotBuild(done.stderr.strip())
    fresh.rename(target)
    return target
