"""`holdfast pipeline` against a reader, without Spark: what it prints, its exit codes, and one sentence for what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.pipeline_session import sentence
from pipeline.archive_files import parquet_files
from pipeline.audit_archive import compare
from pipeline.manifest import DIRECTORY
from tests.actors.served import Said, Served
from tests.pipeline.archives import endpoint, store

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[Served, list[Said]]]:
    with store(per_generation=30) as found:
        yield found


@pytest.fixture
def broker(shop: tuple[Served, list[Said]]) -> Served:
    return shop[0]


def run(*words: str) -> Result:
    return RUNNER.invoke(app, ["pipeline", *words])


def told(result: Result) -> Any:
    """What was printed as JSON: the reader is in this process, too, and its log comes in between."""
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line[:1] in "[{" and line[-1:] in "]}"]
    return json.loads(line)


def there(broker: Served, directory: Path) -> list[str]:
    (directory / "token").write_text(f"{broker.token}\n")
    return ["--brokers", broker.address, "--token-file", str(directory / "token")]


def one_sentence(result: Result, *words: str, code: int = 1) -> None:
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("holdfast: ") and line.endswith(".") and not line.endswith("..")
    assert all(word in line for word in words), line


# ---------------------------------------------------------------------------------------------------- archive


def test_an_archive_is_written_verified_and_compared(shop: tuple[Served, list[Said]], tmp_path: Path) -> None:
    """Each command says what it did, for people and as JSON; the second run has nothing to do."""
    broker, published = shop
    root, at = str(tmp_path / "lake"), there(broker, tmp_path)
    some = len(published) - len(published) // 4
    assert told(run("archive", root, "--master", "none", "--lease", "mine", "--json", *at))["rows"] == some
    assert "there was nothing to archive" in run("archive", root, "--master", "none", "--lease", "mine", *at).stdout
    rest = run("archive", root, "--master", "none", "--lease", "mine", "--live-after", "0s", *at)
    assert f"{len(published) - some} messages in" in rest.stdout
    whole = run("verify", root)
    assert whole.exit_code == 0 and f"{len(published)} messages" in whole.stdout and "nothing is wrong" in whole.stdout
    packed = told(run("compact", root, "--json"))
    # Each generation has an hour of its own here.
    assert (packed["before"], packed["after"]) == (0, 0)
    assert told(run("verify", root, "--json"))["problems"] == []
    leases = told(run("capacity", "--json", *at))["leases"]
    assert "mine" in {lease["name"] for lease in leases}
    found = compare(None, endpoint(broker), root)
    assert found.problems == () and found.generations == 8


def test_a_flipped_byte_of_an_archive_is_found(broker: Served, tmp_path: Path) -> None:
    """By verify, and by the comparison with the store; in a file, and in what the manifest says of a generation."""
    root = tmp_path / "lake"
    assert run("archive", str(root), "--master", "none", "--lease", "none", *there(broker, tmp_path)).exit_code == 0
    file = max(parquet_files(root), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    file.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    bad = run("verify", str(root))
    assert bad.exit_code == 1 and "DAMAGED" in bad.stdout and file.name in bad.stdout
    assert any(file.name in problem for problem in compare(None, endpoint(broker), root).problems)
    file.write_bytes(whole)
    assert compare(None, endpoint(broker), root).problems == ()
    commit = root / DIRECTORY / "00000001.json"
    commit.write_bytes(commit.read_bytes().replace(b'"rows":', b'"rows" :', 1))
    assert run("verify", str(root)).exit_code == 1
    assert compare(None, endpoint(broker), root).problems


def test_an_archive_that_lacks_what_the_store_has_is_unlike_it(broker: Served, tmp_path: Path) -> None:
    """As of another broker that calls itself by the same name."""
    root = tmp_path / "lake"
    with store(generations=1, per_generation=29) as (other, _):
        assert run("archive", str(root), "--master", "none", "--lease", "none", *there(other, tmp_path)).exit_code == 0
    problems = compare(None, endpoint(broker), root).problems
    assert problems and all("the store has" in each or "are not those of the store" in each for each in problems)


# ---------------------------------------------------------------------------------------------------- capacity and tokens


def test_capacity_counts_what_is_stored_by_pattern(shop: tuple[Served, list[Said]], tmp_path: Path) -> None:
    """All of it; a filter asks for less; elsewhere nothing is said of the quota and of sessions, rather than something wrong."""
    broker, published = shop
    at = there(broker, tmp_path)
    found = told(run("capacity", "--json", "--topic-filter", "plant/#", "--period", "0s", *at))
    wanted: dict[str, int] = {}
    for each in published:
        topic = each.topic.decode()
        if topic.startswith("plant/"):
            wanted[topic] = wanted.get(topic, 0) + 1
    assert {each["pattern"]: each["rows"] for each in found["patterns"]} == wanted
    assert found["forecast"]["quota_bytes"] is None
    text = run("capacity", "--period", "0s", "--top", "1", *at).stdout
    assert "more patterns" in text and "which sessions would lose messages is known only where the data directory is" in text


def test_a_new_token_is_printed_once_with_its_entry(tmp_path: Path) -> None:
    """The secret on standard output alone; what the configuration gets opens nothing, and is what the configuration takes."""
    import hashlib
    import tomllib

    from config.pipeline import Pipeline

    made = run("token", "--new", "lake", "--filter", "plant/#", "--write")
    secret = made.stdout.strip()
    assert made.exit_code == 0 and len(secret) > 30 and secret not in made.stderr
    (entry,) = Pipeline.model_validate(tomllib.loads(made.stderr[made.stderr.index("[pipeline]") :])["pipeline"]).tokens
    assert (entry.name, entry.filters, entry.write) == ("lake", ("plant/#",), True)
    assert entry.sha256 == hashlib.sha256(secret.encode()).hexdigest()
    one_sentence(run("token", "--new", "lake"), "--filter", code=2)


# ---------------------------------------------------------------------------------------------------- sentences


def test_what_makes_no_sense_is_one_sentence_and_code_2(broker: Served, tmp_path: Path) -> None:
    """Before anything is asked or started."""
    at = there(broker, tmp_path)
    one_sentence(run("audit", "--sequence", "nonsense", *at), "nonsense", "json:FIELD", code=2)
    one_sentence(run("capacity", "--topic-filter", "a/#/b", *at), "a/#/b", "no topic filter", code=2)
    one_sentence(run("capacity", "--period", "soon", *at), "soon", "no duration", code=2)
    one_sentence(run("audit", "--since", "soon", *at), "soon", "no time", code=2)
    one_sentence(run("archive", str(tmp_path), "--format", "csv", *at), "csv", "parquet or delta", code=2)
    one_sentence(run("archive", str(tmp_path), "--lease", "none", "--capture", "a/#", *at), "--capture", "--lease none", code=2)
    one_sentence(run("archive", str(tmp_path), "--lease", "none", "--block", *at), "--block", "--lease none", code=2)
    one_sentence(run("archive", str(tmp_path), "--lease", "none", "--lease-max-age", "1d", *at), "--lease-max-age", code=2)
    one_sentence(run("archive", str(tmp_path), "--lease", "none", "--lease-max-bytes", "1GiB", *at), "--lease-max-bytes", code=2)
    one_sentence(run("archive", str(tmp_path), "--lease-ttl", "0s", *at), "--lease-ttl", code=2)
    one_sentence(run("archive", str(tmp_path), "--watch", "--interval", "0s", *at), "--interval", "at least 1s", code=2)
    one_sentence(run("archive", str(tmp_path), "--watch", "--interval", "1h", "--lease-ttl", "90m", *at), "--interval", "half", code=2)
    one_sentence(run("archive", str(tmp_path), "--lease", "x" * 300, *at), "300", code=2)
    one_sentence(run("restore", str(tmp_path), "--offsets", "0:9:3", *at), "0:9:3", "SHARD:FROM:TO", code=2)
    one_sentence(run("capacity", "--brokers", "h:1"), "--token-file", code=2)
    one_sentence(run("capacity", "--data-dir", ".", *at), "leave one out", code=2)
    one_sentence(run("capacity", "--token-file", "x"), "belong to --brokers", code=2)
    one_sentence(run("capacity", "--brokers", "h:x", "--token-file", at[-1]), "host:port", code=2)


def test_what_cannot_be_done_is_one_sentence_and_code_1(broker: Served, tmp_path: Path) -> None:
    """A wrong token, no archive, no broker, no token file."""
    at = there(broker, tmp_path)
    (tmp_path / "wrong").write_text("not-the-one\n")
    one_sentence(run("capacity", *at[:2], "--token-file", str(tmp_path / "wrong")), "token", "not one of this broker")
    one_sentence(run("capacity", *at[:2], "--token-file", str(tmp_path / "absent")), "absent", "cannot be read")
    one_sentence(run("verify", str(tmp_path)), "is not an archive")
    one_sentence(run("start", "--data-dir", str(tmp_path)), "is not the data directory of a broker")
    archive = ["archive", str(tmp_path / "lake"), "--master", "none", *at[:2], "--token-file", str(tmp_path / "wrong")]
    one_sentence(run(*archive), "token")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain.", "plain"),
        ("[USER_RAISED_EXCEPTION] a payload cannot be decoded: topic a SQLSTATE: P0001", "a payload cannot be decoded: topic a"),
        (
            '[STREAM_FAILED] Query failed: x\nTraceback\n  File "a.py"\n'
            "holdfast_spark.options.OptionError: option x is y; wanted is z\n\n\tat org.apache",
            "option x is y; wanted is z",
        ),
        ("An error\npipeline.archived.ArchiveError: first\nholdfast_spark.protocol.Refused: last\n", "last"),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found. SQLSTATE: 42P01; line 1 pos 14;\n'Project",
            "The table `x` cannot be found",
        ),
    ],
)
def test_pages_of_spark_come_down_to_what_they_say(text: str, wanted: str) -> None:
    """What one of ours said last, or else the first line without codes."""
    assert sentence(Exception(text)) == wanted


def test_without_spark_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, broker: Served, tmp_path: Path) -> None:
    """Of every command that needs it; those that do not work as ever."""
    import importlib.util

    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name in ("pyspark", "pyarrow") else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    at = there(broker, tmp_path)
    for words in (["audit"], ["sql", "select 1"], ["archive", "x"], ["restore", "x"]):
        one_sentence(run(*words, *at), "pyspark is not installed: make env-spark")
    one_sentence(run("verify", "x"), "pyspark is not installed")
    assert run("capacity", *at).exit_code == 0
