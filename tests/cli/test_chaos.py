"""`holdfast chaos`, as far as it says no: where it is not enabled, and what makes no sense."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from actors.processes import identify
from actors.run import Run, boot_id, record_run
from actors.topology import Announcement, ListenerInfo, announce
from cli.main import app
from tests.actors.places import topology_in


def chaos(place: Path, *words: str, enabled: bool = True, plain: bool = True) -> Result:
    """Of a broker that seems to run: its launcher is this process."""
    topology = replace(topology_in(place, n_gateways=2), chaos=enabled)
    launcher = identify(os.getpid())
    assert launcher is not None
    record_run(topology.data_dir, Run(topology.run_dir, launcher, boot_id(), False))
    (topology.run_dir / "topology.json").write_text(topology.to_json())
    if plain:
        announce(topology, Announcement("gateway", "gateway-0", os.getpid(), (ListenerInfo(0, "tcp", "127.0.0.1", 1, True),)))
    return CliRunner().invoke(app, ["chaos", *words, "--data-dir", str(topology.data_dir)])


@pytest.mark.parametrize(
    "words", [("kill", "shard"), ("pause", "shard-0"), ("partition", "gateway", "shard"), ("slow-disk", "shard"), ("disk-full", "shard")]
)
def test_it_is_refused_where_it_is_not_enabled(tmp_path: Path, words: tuple[str, ...]) -> None:
    """In one sentence, before anything else is looked at."""
    done = chaos(tmp_path, *words, enabled=False)
    assert (done.exit_code, done.stdout) == (1, "")
    assert (
        done.stderr == "holdfast: chaos is not enabled in this broker: it is refused unless it was started with `chaos.enabled = true`.\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("kill", "launcher"), 1, "'launcher' cannot be broken like that: wanted is shard, session, gateway,"),
        (("kill", "shard-1"), 1, "there is no shard-1: there are shard-0 to shard-0."),
        (("kill", "site-1"), 1, "this broker has one site, and a site is broken by what breaks its processes: name a role."),
        (
            ("partition", "gateway", "site-0123456789abcdef"),
            1,
            "this broker has one site, and a site is broken by what breaks its processes",
        ),
        (("partition", "gateway", "controller"), 1, "'controller' cannot be broken like that: wanted is shard, session, gateway,"),
        (("disk-full", "gateway"), 1, "'gateway' cannot be broken like that: wanted is shard, or one of them such as shard-0."),
        (("kill", "shard", "--for", "soon"), 2, "'soon' is no duration"),
        (("kill", "shard", "--for", "25h"), 1, "a fault lasts longer than nothing and up to 24 hours."),
        (("kill", "shard", "--for", "0s"), 1, "a fault lasts longer than nothing and up to 24 hours."),
        (("kill", "shard", "--every", "0s"), 2, "--every is a time above 0."),
        (("slow-disk", "shard", "--delay", "2m"), 2, "--delay is a time above 0, and up to 60s."),
        (("kill", "shard", "--connect", "h:x"), 2, "'h:x' is no address"),
        (("kill", "shard", "--topic", "a/#"), 2, "'a/#' cannot be the beginning of topics"),
        (("kill", "shard", "--password-file", "/nowhere"), 1, "/nowhere cannot be read: No such file or directory."),
        (
            ("kill", "shard", "--rate", "1000", "--for", "24h"),
            2,
            "the oracle would send 345,616,000 messages, and keeps account of 5,000,000",
        ),
    ],
)
def test_what_makes_no_sense_is_a_sentence(tmp_path: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    """And nothing is broken."""
    done = chaos(tmp_path, *words)
    assert (done.exit_code, done.stdout) == (code, "") and done.stderr.startswith(f"holdfast: {sentence}"), done.stderr
    assert not list((tmp_path / "run").glob("*.fault"))


def test_a_broker_without_plain_tcp_wants_to_be_told_where_the_oracle_goes(tmp_path: Path) -> None:
    """Only the operator knows what its TLS wants."""
    done = chaos(tmp_path, "kill", "shard", plain=False)
    assert done.exit_code == 1 and "say with --connect where the oracle goes, or --no-oracle" in done.stderr


def test_nothing_runs_there(tmp_path: Path) -> None:
    """As of every command that asks a running broker."""
    done = CliRunner().invoke(app, ["chaos", "kill", "shard", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1 and "nothing runs in" in done.stderr
