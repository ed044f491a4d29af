"""What tests use of the machine they run on, and how it is found.

`@pytest.mark.needs("etcd")` names an entry of this table; tests/conftest.py skips or fails by it.
The programs come from deploy/debian-packages.txt, so a name there and a name here cannot drift apart.

`python -m tests.needs` prints the names of all needs that are there, for `.ci/run`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.java import JavaMissing, find_java

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "deploy" / "debian-packages.txt"
# Debian keeps servers such as mosquitto in /usr/sbin, which is not on everybody's PATH, and those of PostgreSQL by their version.
_DATABASES = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", *_DATABASES])
SYSTEM_CURE = "make system-deps"

_PACKAGE_LINE = re.compile(r"^(?P<package>[a-z0-9][a-z0-9+.-]*)\s+#\s*(?P<need>[a-z0-9-]+):\s*(?P<commands>.+)$")


@dataclass(frozen=True, slots=True)
class Need:
    """One thing a test may need. It is there when every command, module and directory of it is, and its trial does not fail."""

    name: str
    cure: str
    commands: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    directory_variable: str | None = None
    trial: tuple[str, ...] = ()
    """A command that does for a moment what the test does for long."""
    search: Callable[[], str | None] = lambda: None
    """What else is not there, in words."""

    def missing(self) -> str | None:
        """What is not there, in words; None when all is."""
        for command in self.commands:
            if find_program(command) is None:
                return f"no program {command}"
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                return f"no Python module {module}"
        if self.directory_variable is not None:
            directory = os.environ.get(self.directory_variable, "")
            if not directory:
                return f"{self.directory_variable} is not set"
            if not Path(directory).is_dir():
                return f"{self.directory_variable} names {directory}, which is no directory"
        if self.trial and subprocess.run(self.trial, capture_output=True, check=False).returncode != 0:
            return f"no success with `{' '.join(self.trial)}`"
        return self.search()


def find_program(name: str) -> str | None:
    """Path of a program, servers in /usr/sbin included."""
    return shutil.which(name, path=SEARCH_PATH)


def _from_packages(text: str) -> dict[str, Need]:
    lines = (_PACKAGE_LINE.match(line) for line in text.splitlines())
    return {m["need"]: Need(name=m["need"], cure=SYSTEM_CURE, commands=tuple(m["commands"].split())) for m in lines if m}


def _java() -> str | None:
    try:
        find_java(os.environ)
    except JavaMissing as error:
        return str(error)
    return None


def _compiled() -> str | None:
    """Compiled code does not see what a test puts in the place of a method or a constant, and lets nobody derive from its classes."""
    spec = importlib.util.find_spec("shards.core")
    return None if spec is not None and str(spec.origin).endswith(".py") else "mypyc has compiled it"


OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
"""Runs a shell command that may mount file systems, which nobody else sees and which go with it."""

NEEDS: dict[str, Need] = {
    **_from_packages(PACKAGES.read_text()),
    "ray": Need("ray", cure="make env", modules=("ray",)),
    "rocksdict": Need("rocksdict", cure="make env", modules=("rocksdict",)),
    "own-mounts": Need(
        "own-mounts",
        cure="let users make user namespaces of their own (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)",
        commands=("unshare",),
        trial=(*OWN_MOUNTS, "mount -t tmpfs tmpfs /tmp"),
    ),
    "own-processes": Need(
        "own-processes",
        cure="let users make user namespaces of their own (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)",
        commands=("unshare", "nsenter"),
        trial=(
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "mount",
            "-t",
            "tmpfs",
            "tmpfs",
            "/opt",
        ),
    ),
    "interpreted": Need("interpreted", cure="the checkout as it is, with nothing compiled", search=_compiled),
    "systemd": Need("systemd", cure="a machine with systemd", commands=("systemd-analyze",)),
    "arrow": Need("arrow", cure="make env-spark", modules=("pyarrow",)),
    "kafka": Need("kafka", cure="make env", modules=("aiokafka", "confluent_kafka")),
    "spark": Need("spark", cure="make env-spark", modules=("pyspark", "pyarrow", "pandas"), search=_java),
    "load": Need("load", cure="HOLDFAST_LOAD=<directory of the load meter>", directory_variable="HOLDFAST_LOAD"),
    "conformance": Need(
        "conformance", cure="HOLDFAST_CONFORMANCE=<directory of the conformance suites>", directory_variable="HOLDFAST_CONFORMANCE"
    ),
}


def required() -> frozenset[str]:
    """Needs named by HOLDFAST_REQUIRE (commas or spaces between): missing one of these is a failure, not a skip."""
    return frozenset(re.split(r"[,\s]+", os.environ.get("HOLDFAST_REQUIRE", "").strip())) - {""}


if __name__ == "__main__":
    print(*[need.name for need in NEEDS.values() if need.missing() is None])
