"""An archive against its store: each kind of difference, planted, is one sentence that says where it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_spark.client import Client
from pipeline.archive import USUAL
from pipeline.archive_verify import table_problems
from pipeline.audit import Report
from pipeline.audit_archive import compare, with_archive
from pipeline.manifest import DIRECTORY, Manifest
from tests.actors.served import Said, Served, said, served
from tests.pipeline.archives import archived, endpoint, messages, store

NO_LEASE = replace(USUAL, lease=None)
BEFORE = Report(None, 0, 0, 0, 0, 0, 0, 0, None, 0, (), ())


@contextmanager
def sealed(*each: Said) -> Iterator[Served]:
    """One sealed generation of these messages."""
    with served(*each, n_shards=1) as broker:
        broker.roll()
        yield broker


def of_ten(**changed: bytes) -> list[Said]:
    """Ten messages, the fifth of them changed."""
    found = [said(b"plant/1/temp", b"%d" % number, b"client") for number in range(10)]
    found[4] = replace(found[4], **changed)  # type: ignore[arg-type]  # they are bytes
    return found


@pytest.mark.parametrize(
    "changed",
    [{"payload": b"5"}, {"client": b"clienT"}, {"properties": b"\x02\x01\x00"}],
    ids=["payload", "publisher", "property"],
)
def test_a_message_that_is_another_is_found_though_the_number_is_the_same(tmp_path: Path, changed: dict[str, bytes]) -> None:
    """One message of ten has one value that is another."""
    with sealed(*of_ten()) as broker:
        archived(broker, tmp_path, NO_LEASE)
        assert compare(None, endpoint(broker), tmp_path).problems == ()
    with sealed(*of_ten(**changed)) as other:
        (problem,) = compare(None, endpoint(other), tmp_path).problems
        assert "generation 1 of shard 0" in problem and "the 10 messages of the archive are not those of the store" in problem


def test_a_message_more_or_less_is_counted(tmp_path: Path) -> None:
    """Both numbers are said."""
    with sealed(*of_ten()) as broker:
        archived(broker, tmp_path, NO_LEASE)
    with sealed(*of_ten()[:9]) as other:
        (problem,) = compare(None, endpoint(other), tmp_path).problems
        assert problem.endswith("the archive has 10 messages, and the store has 9")


@pytest.mark.slow
def test_what_is_in_neither_is_said(tmp_path: Path) -> None:
    """Dropped before it was archived: no comparison shows it, since the store does not have it either; the manifest knows."""
    with store(per_generation=10, generations=1, n_shards=1) as (broker, _):
        archived(broker, tmp_path, NO_LEASE)
        broker.publish(*messages(10, 9))
        broker.roll()
        number = broker.shards.generations()[-2]
        broker.drop(number)
        assert archived(broker, tmp_path, NO_LEASE).lost
        report = with_archive(None, endpoint(broker), tmp_path, BEFORE)
        (problem,) = report.damage
        assert report.wrong and f"generation {number} " in problem and problem.endswith("it was dropped before it was archived (period)")


def test_an_archive_of_another_store_than_its_commits_say_is_one_sentence(tmp_path: Path) -> None:
    """A manifest that was changed is damage, and nothing is compared with it."""
    with sealed(*of_ten()) as broker:
        archived(broker, tmp_path, NO_LEASE)
        path = tmp_path / DIRECTORY / "00000001.json"
        path.write_bytes(path.read_bytes().replace(b'"shard', b'"shArd').replace(b"0123456789abcdef", b"f123456789abcdef"))
        found = compare(None, endpoint(broker), tmp_path)
        assert found.generations == 0 and len(found.problems) == 1 and "was changed after it was written" in found.problems[0]


@pytest.mark.slow
def test_a_generation_that_goes_while_it_is_compared_is_no_damage(tmp_path: Path) -> None:
    """Its time was over: what is left is compared, and the archive is not blamed."""
    with store(per_generation=10, generations=2, n_shards=1) as (broker, _):
        archived(broker, tmp_path, NO_LEASE)

        def step(name: str) -> None:
            if name == "reading the store":
                broker.drop(1)
                with Client(endpoint(broker)) as client:
                    client.cuts()

        found = compare(None, endpoint(broker), tmp_path, step)
        assert found.problems == () and found.generations == 1


@pytest.mark.slow
def test_a_table_that_goes_on_while_the_archive_is_verified_is_no_damage(tmp_path: Path) -> None:
    """It is compared with the commit that it is at by then; one that stays behind is said to."""
    with store(per_generation=10, generations=2, n_shards=1) as (broker, _):
        archived(broker, tmp_path, replace(NO_LEASE, format="delta", round_bytes=1))
        manifest = Manifest(tmp_path)
        assert manifest.load().number == 2
        assert table_problems(tmp_path, manifest, manifest.at(1)) == []
        archived(broker, tmp_path, replace(NO_LEASE, live_after_ms=0))
        newest = manifest.load()
        assert table_problems(tmp_path, manifest, newest) == []
        (problem,) = table_problems(tmp_path, manifest, replace(newest, number=newest.number + 1))
        assert "the next run brings it up" in problem
