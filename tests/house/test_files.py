"""Rules for all that is committed: pins, pages, words, and the commands that pages name."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.tree import ROOT, files, project, texts
from tests.needs import NEEDS, PACKAGES

PINS = ("core", "dev", "spark")

# Written in pieces, so that this file passes its own test.
REGISTRY_HOSTS = (
    "py" + "pi.",
    "python" + "hosted",
    "npm" + "js.",
    "deb." + "debian",
    "crates" + ".io",
    "proxy." + "golang",
    "conda." + "anaconda",
)
PLACES = re.compile(r"(?<![\w.$}~-])/(" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers"]) + r")/")
LEFT_FOR_LATER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("name", PINS)
def test_requirements_are_names_and_versions_only(name: str) -> None:
    """No index, no address, no hash: from where to install is the user's own configuration."""
    for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
        assert re.fullmatch(r"#.*|[a-z0-9-]+==[A-Za-z0-9.+!_]+", line), line


def test_pins_fit_the_ranges_of_pyproject() -> None:
    """`make lock` was run after the last change of a range."""
    ranges = {
        "core": [*project()["project"]["dependencies"], *project()["build-system"]["requires"]],
        **project()["project"]["optional-dependencies"],
    }
    for name in PINS:
        known = {**pins("core"), **pins(name)}
        for wanted in map(Requirement, ranges[name]):
            version = known.get(canonicalize_name(wanted.name))
            assert version is not None, f"requirements/{name}.txt lacks {wanted.name}"
            assert wanted.specifier.contains(version), f"{wanted.name}=={version} is outside {wanted.specifier}"


def test_pins_of_one_file_are_in_no_other() -> None:
    """dev.txt and spark.txt come on top of core.txt, so a version stands in one place."""
    assert not pins("core").keys() & pins("dev").keys()
    assert not pins("core").keys() & pins("spark").keys()


def test_no_file_names_a_package_registry() -> None:
    """Where packages come from differs from user to user."""
    naming = (f"{name}: {host}" for name, text in texts() for host in REGISTRY_HOSTS if host in text.lower())
    assert sorted(naming) == []


def test_no_file_names_a_place_on_the_machine_it_was_written_on() -> None:
    """A checkout works wherever it lies."""

    def naming() -> Iterator[str]:
        for name, text in texts():
            if str(ROOT) + "/" in text:
                yield f"{name}: {ROOT}"
            for number, line in enumerate(text.splitlines(), start=1):
                if PLACES.search(line):
                    yield f"{name}:{number}: {line.strip()[:100]}"

    assert sorted(naming()) == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    """What is missing is an issue, or a sentence in the changelog."""
    left = (f"{name}:{n}" for name, text in texts() for n, line in enumerate(text.splitlines(), 1) if LEFT_FOR_LATER.search(line))
    assert sorted(left) == []


@pytest.mark.parametrize("page", ["configuration.md", "glossary.md", "formats.md"])
def test_the_pages_that_others_point_to_are_there(page: str) -> None:
    """Settings, words and stored formats each have their page."""
    assert (ROOT / "docs" / page).is_file()


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link of every Markdown page names a file of this repository."""

    def broken() -> Iterator[str]:
        for name, text in texts():
            if name.suffix == ".md":
                for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                    if "://" not in target and not (ROOT / name.parent / target).exists():
                        yield f"{name}: {target}"

    assert sorted(broken()) == []


def test_every_make_command_in_a_page_exists() -> None:
    """README and docs name targets that the Makefile has."""
    makefile = (ROOT / "Makefile").read_text()
    targets = [re.escape(found).replace("%", ".+") for found in re.findall(r"^([a-z%-]+(?: [a-z%-]+)*):", makefile, re.M)]
    known = re.compile("|".join(one for line in targets for one in line.replace("\\ ", " ").split()))
    for name, text in texts():
        if name.suffix == ".md":
            for target in re.findall(r"`make ([a-z0-9-]+)", text):
                assert known.fullmatch(target), f"{name}: make {target}"


def test_the_package_list_and_the_needs_of_tests_are_one_table() -> None:
    """Each line of deploy/debian-packages.txt gives a need, and apt reads the same file."""
    lines = [line for line in PACKAGES.read_text().splitlines() if line and not line.startswith("#")]
    by_system = [need for need in NEEDS.values() if need.cure == "make system-deps"]
    assert len(lines) == len(by_system)
    assert all(need.commands for need in by_system)


def test_needs_named_by_tests_are_known() -> None:
    """A misspelt need would skip for ever."""
    for name, text in texts():
        if name.suffix == ".py" and name.parts[0] == "tests" and "needs(" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "needs":
                    named = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                    assert set(named) <= NEEDS.keys(), f"{name}:{node.lineno}: {named}"


@pytest.mark.parametrize("script", [".ci/run", "scripts/system_deps.sh"])
def test_scripts_can_be_run(script: str) -> None:
    """They are executable and name bash."""
    assert os.access(ROOT / script, os.X_OK)
    assert (ROOT / script).read_text().startswith("#!/usr/bin/env bash\n")


def test_the_licence_is_the_whole_text() -> None:
    """Apache-2.0, as pyproject says."""
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project()["project"]["license"] == "Apache-2.0"


def test_nothing_that_tools_make_is_committed() -> None:
    """Caches, environments and data directories stay out."""
    made = {"__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "data", "node_modules"}
    assert [str(name) for name in files() if made & set(Path(name).parts)] == []
