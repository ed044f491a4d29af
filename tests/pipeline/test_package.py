"""The zip that executors get: whole, alike, and enough by itself."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import holdfast_spark
from pipeline.package import packaged, zipped

ROOT = Path(__file__).resolve().parents[2]

ALONE = """
import pkgutil, sys
sys.path[:] = [sys.argv[1], *(path for path in sys.path if path.rstrip("/") != sys.argv[2])]
import holdfast_spark
assert holdfast_spark.__file__.startswith(sys.argv[1]), holdfast_spark.__file__
for module in pkgutil.iter_modules(holdfast_spark.__path__):
    __import__(f"holdfast_spark.{module.name}")
    print(module.name)
"""


def test_the_same_files_make_the_same_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions find it again by its checksum, and a changed one has another name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    first, second = packaged(), packaged()

    assert first == second
    assert first.is_relative_to(tmp_path)
    assert zipped() == first.read_bytes()


def test_all_modules_are_in_it_and_nothing_else() -> None:
    """No compiled files, whose names and bytes depend on who imported what."""
    package = Path(holdfast_spark.__file__).parent
    (path,) = {packaged()}

    assert sorted(zipfile.ZipFile(path).namelist()) == sorted(f"holdfast_spark/{each.name}" for each in package.glob("*.py"))


@pytest.mark.slow
@pytest.mark.needs("spark")
def test_every_module_can_be_imported_from_the_zip_alone(tmp_path: Path) -> None:
    """On an executor there is no checkout: it is taken off the path here."""
    file = tmp_path / "of us.zip"
    subprocess.run([sys.executable, "-m", "pipeline.package", file], cwd=ROOT, check=True)

    done = subprocess.run([sys.executable, "-c", ALONE, file, ROOT], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert {"source", "sink", "register", "protocol"} <= set(done.stdout.split())
