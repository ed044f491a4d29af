"""The files of the container: read as a builder reads them, and held against the checkout."""

from __future__ import annotations

import fnmatch
import re
import shlex
import tomllib
from pathlib import Path

from config.load import load
from tests.house.tree import ROOT, files, packages

DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    """Each with what stands behind it; continued lines are one, comments are none."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def the(name: str) -> str:
    """What the image has of it: of several the last counts."""
    return [rest for each, rest in instructions() if each == name][-1]


def ignored(name: Path) -> bool:
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    parts = ["/".join(name.parts[: n + 1]) for n in range(len(name.parts))]
    return any(
        fnmatch.fnmatch(part, pattern.removeprefix("**/")) or fnmatch.fnmatch(part, pattern) for part in parts for pattern in patterns
    )


def test_each_line_is_an_instruction_and_the_last_stage_has_what_an_operator_needs() -> None:
    """A base with its version, no root, a signal, a health check, and words that no shell stands before."""
    found = instructions()
    assert {name for name, _ in found} == INSTRUCTIONS
    assert all(re.fullmatch(r"python:3\.11-slim-bookworm( AS build)?", rest) for name, rest in found if name == "FROM")
    last = [name for name, _ in found]
    assert "USER" in last[len(last) - last[::-1].index("FROM") :]
    user, group = the("USER").split(":")
    assert f"--uid {user} --gid holdfast" in str(found) and f"--gid {group} holdfast" in str(found) and user != "0"
    assert the("STOPSIGNAL") == "SIGTERM"
    assert shlex.split(the("ENTRYPOINT").strip("[]")) == ["holdfast"]
    assert 'holdfast status | grep -q "^ready: "' in the("HEALTHCHECK")


def test_its_configuration_is_good_and_fits_the_image(tmp_path: Path) -> None:
    """The volume, the ports and the file that `up` reads are the same everywhere."""
    path = ROOT / "deploy/docker/holdfast.toml"
    config = load(path, environ={})
    assert tomllib.loads(path.read_text())["data_dir"] == config.data_dir == the("VOLUME")
    assert Path(config.data_dir) == Path(the("WORKDIR")) / "data", "commands find it without --data-dir"
    assert the("EXPOSE").split() == [config.listeners.tcp.bind.rpartition(":")[2], str(config.admin.listen.port)]
    assert (f"deploy/docker/{path.name} {the('WORKDIR')}/{path.name}") in [rest for name, rest in instructions() if name == "COPY"]
    assert f'"--config", "{path.name}"' in the("CMD")


def test_what_the_image_needs_is_in_it_and_what_it_does_not_is_left_out() -> None:
    """By .dockerignore: all of our packages, what building reads, no tests, no git."""
    sent = [name for name in files() if not ignored(name)]
    needed = [name for name in files() if name.parts[0] in packages() and "results" not in name.parts]
    needed += [Path(each) for each in ("pyproject.toml", "README.md", "LICENSE", "requirements/core.txt", "deploy/docker/holdfast.toml")]
    assert [name for name in needed if name not in sent] == []
    assert ignored(Path(".git/HEAD")) and ignored(Path(".venv/bin/python")) and ignored(Path("a/__pycache__/b.pyc"))
    assert {name.parts[0] for name in sent} & {"tests", ".ci", "data"} == set()


def test_what_is_compiled_is_what_runs() -> None:
    """In the image and in install.md: every package that a broker or its commands load."""
    compiled = re.findall(r"compileall -q ([a-z_ ]+)", DOCKERFILE.read_text() + (ROOT / "docs/install.md").read_text())
    assert len(compiled) == 2
    assert {tuple(sorted(each.split())) for each in compiled} == {tuple(sorted(set(packages()) - {"benchmarks", "bridge"}))}
