"""The log of an archive's Delta table has checksums, and a bit that flips in it is found."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import delta_log
from pipeline.archive import Options
from pipeline.archive_verify import verify
from tests.pipeline.archives import archived, store

DELTA = Options(format="delta", live_after_ms=0, round_bytes=1)


@pytest.mark.slow
def test_a_bit_that_flips_in_the_log_of_the_table_is_found(tmp_path: Path) -> None:
    """In its times, statistics and schema as well, and in the checksum itself; put back, nothing is wrong."""
    with store(per_generation=20, generations=2) as (broker, _):
        archived(broker, tmp_path, DELTA)
    assert verify(tmp_path).problems == []
    logs, sums = sorted((tmp_path / delta_log.LOG).glob("*.json")), sorted((tmp_path / "_holdfast").glob("*.sha256"))
    assert len(logs) == len(sums) > 2
    for path in (logs[0], logs[-1], sums[-1]):
        whole = path.read_bytes()
        for at in range(0, len(whole), 37):
            path.write_bytes(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
            assert verify(tmp_path).problems, f"byte {at} of {path.name}"
        path.write_bytes(whole)
    assert verify(tmp_path).problems == []


@pytest.mark.slow
def test_checksums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    """So nobody needs us to look; one that is missing is said, and written by the next run."""
    with store(per_generation=20, generations=1) as (broker, _):
        archived(broker, tmp_path, DELTA)
        sums = sorted((tmp_path / "_holdfast").glob("*.sha256"))
        subprocess.run(["sha256sum", "-c", *(path.name for path in sums)], cwd=tmp_path / "_holdfast", check=True, capture_output=True)
        sums[0].unlink()
        (problem,) = verify(tmp_path).problems
        assert "has no checksum" in problem and "the next run" in problem
        archived(broker, tmp_path, replace(DELTA, format=None))
        assert verify(tmp_path).problems == []
