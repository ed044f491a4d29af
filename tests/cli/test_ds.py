"""`holdfast ds`, and `emqx_ctl ds`: the layout of EMQX 5.7 to the blank, and what one site answers to those who would move replicas."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from actors.inquiry.sites import Replica, ShardInfo, SiteInfo, Sites
from cli.ds import emqx_ctl, laid_out
from cli.main import app

A, B = "0D6BB5E63C0D6BB5", "5C028D6CE9459C76"
ONE = """THIS SITE:
0D6BB5E63C0D6BB5

SITES:
0D6BB5E63C0D6BB5    'holdfast@n1.local'        up

SHARDS:
Shard                             Replicas
messages/0                        0D6BB5E63C0D6BB5
messages/1                        0D6BB5E63C0D6BB5
messages/10                       0D6BB5E63C0D6BB5
messages/2                        0D6BB5E63C0D6BB5"""
STOPPED = """THIS SITE:
0D6BB5E63C0D6BB5

SITES:
0D6BB5E63C0D6BB5    'holdfast@n1.local'    (x) down

SHARDS:
Shard                             Replicas
messages/0                    (x) 0D6BB5E63C0D6BB5"""
MOVING = """THIS SITE:
0D6BB5E63C0D6BB5

SITES:
0D6BB5E63C0D6BB5    'holdfast@n1.local'        up
5C028D6CE9459C76    'holdfast@n2.local'    (x) down

SHARDS:
Shard                             Replicas
messages/0                        0D6BB5E63C0D6BB5  (x) 5C028D6CE9459C76
messages/1                        0D6BB5E63C0D6BB5

REPLICA TRANSITIONS:
Shard                             Transitions
messages/0                        -5C028D6CE9459C76
messages/1                        +5C028D6CE9459C76  -0D6BB5E63C0D6BB5"""
UNCLAIMED = """THIS SITE:
(!) UNCLAIMED
(!) This data directory has no site yet.
(!) It gets one, and its shards, when its broker is first started."""


def sites(up: bool, *shards: int) -> Sites:
    return Sites(
        A, (SiteInfo(A, "holdfast@n1.local", up),), tuple(ShardInfo("messages", shard, (Replica(A, up),)) for shard in shards)
    )  # fmt: skip


def test_what_ds_info_looks_like() -> None:
    """Shards as texts, marks before the sites that they are about, transitions only when there are some."""
    assert laid_out(sites(True, 0, 1, 2, 10)) == ONE
    assert laid_out(sites(False, 0)) == STOPPED
    both = (SiteInfo(A, "holdfast@n1.local", True), SiteInfo(B, "holdfast@n2.local", False))
    first = ShardInfo("messages", 0, (Replica(A, True), Replica(B, False)), (f"-{B}",))
    second = ShardInfo("messages", 1, (Replica(A, True),), (f"+{B}", f"-{A}"))
    assert laid_out(Sites(A, both, (second, first))) == MOVING


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    site = {"format": 1, "site": A.lower(), "incarnation": 1, "n_shards": 2, "created": "2026-01-01T00:00:00Z"}
    (tmp_path / "site.json").write_text(json.dumps(site))
    return tmp_path


def ds(path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["ds", *words, "--data-dir", str(path)])


def test_a_stopped_broker_has_sites_and_replicas_that_are_down(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A directory in which no broker was ever started is unclaimed; one that is not there is refused."""
    text = ds(directory, "info").stdout
    assert f"THIS SITE:\n{A}\n" in text and f"messages/1                    (x) {A}" in text and "(x) down" in text
    found = json.loads(ds(directory, "info", "--json").stdout)
    assert found["this"] == A and [shard["replicas"] for shard in found["shards"]] == [[{"site": A, "up": False}]] * 2
    assert ds(tmp_path_factory.mktemp("empty"), "info").stdout == UNCLAIMED + "\n"
    refused = ds(directory / "no", "info")
    assert refused.exit_code == 1 and "is not the data directory of a broker" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("set-replicas", "messages", A), 0, "ok"),
        (("set_replicas", "all", A.lower()), 0, "ok"),
        (("set-replicas", "messages", A, B), 1, f"Unable to update replicas: Unknown sites: {B}"),
        (("set-replicas", "sessions", A), 1, "Unknown durable storage"),
        (("join", "messages", A), 0, "unchanged"),
        (("join", "all", B), 1, f"Unable to update replicas: Unknown sites: {B}"),
        (("leave", "messages", A), 1, "Unable to update replicas: Replica sets would become too small"),
        (("leave", "messages", B), 0, "unchanged"),
        (("leave", "x", B), 1, "Unknown durable storage"),
        (("forget", A), 1, "Unable to forget site: Site still has replicas of shards"),
        (("forget", B), 1, f"Unable to forget site: Site not found: {B}"),
        (("force-leader", "0", B), 1, f"Unable to force leadership: Site not found: {B}"),
    ],
)
def test_one_site_answers_those_who_would_move_replicas(directory: Path, words: tuple[str, ...], code: int, said: str) -> None:
    """In the words of the design: what is so already is ok or unchanged, what cannot be says why."""
    result = ds(directory, *words)
    assert (result.exit_code, (result.stdout if code == 0 else result.stderr).strip()) == (code, said)


def test_the_name_that_scripts_know(directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`emqx_ctl ds ...` is `holdfast ds ...`; alone it tells how it is used; of other commands it knows none."""
    for words, code, said in (
        (["ds", "join", "all", A, "--data-dir", str(directory)], 0, "unchanged"),
        (["ds"], 0, "ds set-replicas <storage>|all <site>"),
        (["status"], 2, "here it knows `ds` alone"),
        ([], 2, "here it knows `ds` alone"),
    ):
        monkeypatch.setattr(sys, "argv", ["emqx_ctl", *words])
        with pytest.raises(SystemExit) as ended:
            emqx_ctl()
        out, err = capsys.readouterr()
        assert (ended.value.code or 0, said in out + err) == (code, True), (words, out, err)
